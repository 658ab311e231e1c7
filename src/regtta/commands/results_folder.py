"""Results folder of a sweep: its runs, source models and tables."""

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
    """Raise if the folder holds other files, or no runs although ``tables_only`` needs them."""
    if out.exists() and not out.is_dir():
        raise OptionError(f"{out} is a file. Name a folder with --out.")
    if tables_only and not (out / RUNS).is_file():
        raise MissingFileError(f"There are no runs in {out}: expected {out / RUNS}. Run without --tables-only first.")
    # A command that was stopped during its first training leaves only the folder of models.
    if out.is_dir() and not (out / RUNS).exists() and any(path.name != MODELS for path in out.iterdir()):
        raise ExistingFileError(f"{out} holds other files and no {RUNS}. Name a new or empty folder with --out.")


def models_folder(out: Path, named: Path | None) -> Path:
    """Return the folder of source models: ``named`` if given, else one inside ``out``."""
    return (named or out / MODELS).absolute()


def make_runs(out: Path, runs: Sequence[S], tools: Kit[S], listener: Listener, crew: Crew) -> None:
    """Execute the missing runs with ``crew``; the folder is created only once its checks have passed."""
    crew.check(runs, tools)
    _make_folder(out)
    sweep(runs, RunStore(out / RUNS), tools, listener, crew=crew)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"The folder {out} cannot be created: {error}.") from error
    if not os.access(out, os.W_OK):
        raise FileError(f"The folder {out.resolve()} cannot be written to.")


def absolute(path: Path | None) -> Path | None:
    """Return ``path`` as an absolute path, valid in processes with another working directory."""
    return None if path is None else path.absolute()
