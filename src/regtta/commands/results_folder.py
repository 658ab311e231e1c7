"""The folder that a sweep writes to: its runs, its source models and its tables, and nothing of anyone else's."""

import os
from pathlib import Path

from regtta.errors import ExistingFileError, FileError, MissingFileError, OptionError

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


def make_results(out: Path) -> None:
    """Make the folder where it is missing."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{out} cannot be made: {error}.") from error
    if not os.access(out, os.W_OK):
        raise FileError(f"The folder {out.resolve()} cannot be written to.")


def absolute(path: Path | None) -> Path | None:
    """A path that means the same in processes that stand in another folder."""
    return None if path is None else path.absolute()
