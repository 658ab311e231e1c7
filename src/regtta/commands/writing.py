"""One writer among several processes: what the others write goes into a folder that is thrown away."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from regtta.commands.options.adapt import FILES, AdaptOptions
from regtta.commands.teams import Team
from regtta.failing import failing_together

WRITTEN = (*FILES, "tensorboard", "checkpoint")  # all that an adaptation writes, by the name of its option


@contextmanager
def own_files(options: AdaptOptions, team: Team) -> Iterator[AdaptOptions]:
    """The options as they are for the first process; for the others with paths of their own.

    All processes follow a stream in the same way, writing included, and the user gets the files of one. A checkpoint to
    go on from is copied by the others before the first can write to it.
    """
    with ExitStack() as stack:
        with failing_together(team.processes):
            own = options
            if not team.first:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="regtta-"))
                own = _redirected(options, Path(folder))
        team.processes.check_same("checkpoint to go on from", _size(own) if options.resume else "none")
        yield own


def _redirected(options: AdaptOptions, folder: Path) -> AdaptOptions:
    """The options with every path that is written to inside ``folder``, each with its ending."""
    given: dict[str, Path] = {name: path for name in WRITTEN if (path := getattr(options, name)) is not None}
    moved = {name: folder / f"{name}{path.suffix}" for name, path in given.items()}
    if options.resume and "checkpoint" in given and given["checkpoint"].is_file():
        shutil.copyfile(given["checkpoint"], moved["checkpoint"])
    return replace(options, **moved)  # type: ignore[arg-type]


def _size(options: AdaptOptions) -> str:
    there = options.checkpoint is not None and options.checkpoint.is_file()
    return str(options.checkpoint.stat().st_size) if there and options.checkpoint is not None else "none"
