"""Transfer of source models and their statistics between the driver's folder and those of the workers.

The driver's folder is authoritative: its files are sent to every worker that needs them, and files made by a worker are
returned to it before any other worker uses them. So there is only one training of each source model.
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

Sent = dict[str, Any]  # Ray's reference to a file's bytes, by file name


class DriversFiles:
    """Files in the driver's folder of source models, with Ray's references to those already sent.

    Args:
        folder: the folder of source models.
    """

    def __init__(self, folder: Path) -> None:
        self._models = SourceModels(folder)
        self._sent: dict[str, Sent] = {}
        self._up_to_date: set[str] = set()  # keys of source models without new files

    def of(self, source: KeptSource) -> Sent:
        """Return references to all files of a source model, for workers to fetch."""
        import ray

        sent = self._sent.setdefault(source.key, {})
        if source.key not in self._up_to_date:
            self._up_to_date.add(source.key)
            new = [path for path in files_of(source, self._models.folder) if path.name not in sent]
            sent |= {path.name: ray.put(path.read_bytes()) for path in new}
        return sent

    def keep(self, source: KeptSource, made: Mapping[str, bytes]) -> None:
        """Write the files that a worker made for a source model; existing files are kept."""
        for name, content in made.items():
            _write(self._models.folder / Path(name).name, content)
        if made:
            self._up_to_date.discard(source.key)


def files_of(source: KeptSource, folder: Path) -> list[Path]:
    """Return the files of a model and its statistics in ``folder``, without training checkpoints."""
    return sorted(folder.glob(f"{SourceModels(folder).path(source).stem}*.safetensors"))


def fetch(sent: Sent, folder: Path) -> None:
    """Write the sent files to ``folder``, except those that exist."""
    import ray

    for name, reference in sent.items():
        if not (folder / name).exists():
            _write(folder / name, ray.get(reference))


def _write(path: Path, content: bytes) -> None:
    if not path.exists():
        with written_whole(path) as draft:
            draft.write_bytes(content)


# --- folders of workers --------------------------------------------------------------------------


@contextmanager
def marked(folder: Path) -> Iterator[str]:
    """Yield the name of a marker file in ``folder`` kept during the block; machines that see it share the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".sweep-{uuid.uuid4().hex}"
    mark.touch()
    try:
        yield mark.name
    finally:
        mark.unlink(missing_ok=True)


def shares_disk(folder: Path, mark: str) -> bool:
    """Return True if ``folder`` on this machine is the driver's."""
    return (folder / mark).exists()


def scratch(mark: str) -> Path:
    """Return the sweep's temporary folder of source models, for a machine that does not share the driver's disk."""
    folder = Path(tempfile.gettempdir()) / f"regtta{mark}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def remove_scratch(mark: str) -> None:
    """Remove the folder of :func:`scratch`."""
    shutil.rmtree(scratch(mark), ignore_errors=True)
