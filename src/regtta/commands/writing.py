"""Output paths in a process group: only the first process writes the user's files."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from regtta.commands.options.adapt import FILES, AdaptOptions
from regtta.commands.teams import Team
from regtta.failing import failing_together

WRITTEN = (*FILES, "tensorboard", "checkpoint")  # fields of AdaptOptions that name an output


@contextmanager
def own_files(options: AdaptOptions, team: Team) -> Iterator[AdaptOptions]:
    """Yield ``options`` unchanged in the first process, and with temporary output paths in the others.

    All processes run the same code, writing included; the files of the others are deleted. They copy a checkpoint to
    resume from before the first process can overwrite it.
    """
    with ExitStack() as stack:
        with failing_together(team.processes):
            own = options
            if not team.first:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="regtta-"))
                own = _redirected(options, Path(folder))
        team.processes.check_same("checkpoint to resume from", _size(own) if options.resume else "none")
        yield own


def _redirected(options: AdaptOptions, folder: Path) -> AdaptOptions:
    """Return ``options`` with every output path inside ``folder``, keeping the suffixes."""
    given: dict[str, Path] = {name: path for name in WRITTEN if (path := getattr(options, name)) is not None}
    moved = {name: folder / f"{name}{path.suffix}" for name, path in given.items()}
    if options.resume and "checkpoint" in given and given["checkpoint"].is_file():
        shutil.copyfile(given["checkpoint"], moved["checkpoint"])
    return replace(options, **moved)  # type: ignore[arg-type]


def _size(options: AdaptOptions) -> str:
    there = options.checkpoint is not None and options.checkpoint.is_file()
    return str(options.checkpoint.stat().st_size) if there and options.checkpoint is not None else "none"
