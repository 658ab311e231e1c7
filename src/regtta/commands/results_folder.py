"""The folder that a sweep writes to: its runs, its source models and its tables, and nothing of anyone else's."""

import os
from collections.abc import Sequence
from pathlib import Path

from regtta.errors import ExistingFileError, FileError, MissingFileError, OptionError
from regtta.experiments.reproduce.roles import Crew, Kit, Listener, S
from regtta.experiments.reproduce.sweep import sweep
from regtta.experiments.store import RunStore

RUNS = "runs.jsonl"
MODELS = "models"


def check_results(out: Path, *, tables_only: bool = False) -> None:
    """Raise if the folder to write to is another's, or holds no runs where tables are to be made from them."""
    if out.exists() and not out.is_dir():
        raise OptionError(f"{out} is a file. Name a folder by --out.")
    if tables_only and not (out / RUNS).is_file():
        raise MissingFileError(f"There are no runs in {out}: expected {out / RUNS}. Run without --tables-only first.")
    # A command that was stopped in its first training has left the folder of models alone.
    if out.is_dir() and not (out / RUNS).exists() and any(path.name != MODELS for path in out.iterdir()):
        raise ExistingFileError(f"{out} holds other files and no {RUNS}. Name a new or empty folder by --out.")


def models_folder(out: Path, named: Path | None) -> Path:
    """Where source models lie: in the folder that was named, else in that of the results."""
    return (named or out / MODELS).absolute()


def make_runs(out: Path, runs: Sequence[S], tools: Kit[S], listener: Listener, crew: Crew) -> None:
    """Have ``crew`` make the runs that the folder lacks; it is not touched where what they need is missing."""
    crew.check(runs, tools)
    _make_folder(out)
    sweep(runs, RunStore(out / RUNS), tools, listener, crew=crew)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{out} cannot be made: {error}.") from error
    if not os.access(out, os.W_OK):
        raise FileError(f"The folder {out.resolve()} cannot be written to.")


def absolute(path: Path | None) -> Path | None:
    """A path that means the same in processes that stand in another folder."""
    return None if path is None else path.absolute()
