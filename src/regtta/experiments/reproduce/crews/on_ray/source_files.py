"""Source models and their statistics as files, on their way between the folder of the one who drives and workers'.

The driver's folder is the one that counts: what it holds is sent to every worker that needs it, and what a worker made
comes back to it before anyone else sees it. So no two trainings of one source model are ever about.
"""

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regtta.experiments.sources import KeptSource, SourceModels
from regtta.files import written_whole

Sent = dict[str, Any]  # by the name of a file, Ray's reference to its bytes


class DriversFiles:
    """The files of the driver's folder, and those of them that Ray holds.

    Args:
        folder: of source models.
    """

    def __init__(self, folder: Path) -> None:
        self._models = SourceModels(folder)
        self._sent: dict[str, Sent] = {}
        self._looked_for: set[str] = set()  # keys of source models of which there is nothing new

    def of(self, source: KeptSource) -> Sent:
        """All there is of a source model, for workers to fetch."""
        import ray

        sent = self._sent.setdefault(source.key, {})
        if source.key not in self._looked_for:
            self._looked_for.add(source.key)
            new = [path for path in files_of(source, self._models.folder) if path.name not in sent]
            sent |= {path.name: ray.put(path.read_bytes()) for path in new}
        return sent

    def keep(self, source: KeptSource, made: Mapping[str, bytes]) -> None:
        """Write what a worker made of a source model; what is there stays."""
        for name, content in made.items():
            _write(self._models.folder / Path(name).name, content)
        if made:
            self._looked_for.discard(source.key)


def files_of(source: KeptSource, folder: Path) -> list[Path]:
    """The model and all its statistics, as far as they are in ``folder``; no state of a training."""
    return sorted(folder.glob(f"{SourceModels(folder).path(source).stem}*.safetensors"))


def fetch(sent: Sent, folder: Path) -> None:
    """Have what was sent in ``folder``, where it is not there yet."""
    import ray

    for name, reference in sent.items():
        if not (folder / name).exists():
            _write(folder / name, ray.get(reference))


def _write(path: Path, content: bytes) -> None:
    if not path.exists():
        with written_whole(path) as draft:
            draft.write_bytes(content)


# --- where a worker keeps them -------------------------------------------------------------------


@contextmanager
def marked(folder: Path) -> Iterator[str]:
    """The name of a file that lies in ``folder`` during the block: who sees it shares the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".sweep-{uuid.uuid4().hex}"
    mark.touch()
    try:
        yield mark.name
    finally:
        mark.unlink(missing_ok=True)


def shares_disk(folder: Path, mark: str) -> bool:
    """Whether ``folder`` here is the driver's."""
    return (folder / mark).exists()


def scratch(mark: str) -> Path:
    """The folder of source models for the sweep of ``mark`` on a machine that does not share the driver's disk."""
    folder = Path(tempfile.gettempdir()) / f"regtta{mark}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def remove_scratch(mark: str) -> None:
    """Remove what :func:`scratch` made."""
    shutil.rmtree(scratch(mark), ignore_errors=True)
