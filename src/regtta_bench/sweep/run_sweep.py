"""Running the missing runs of a sweep, and the folder of its results."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from regtta.errors import (
    ExistingFileError,
    FileError,
    InvalidFileError,
    MissingFileError,
    ModelMismatchError,
    OptionError,
)
from regtta.persistence import convert_errors
from regtta_bench.sweep.executors.local import Here
from regtta_bench.sweep.interfaces import Crew, Kit, Listener, S, Spec
from regtta_bench.sweep.store import RunStore, key_of


def sweep(specs: Sequence[S], store: RunStore, tools: Kit[S], listener: Listener, *, crew: Crew | None = None) -> None:
    """Execute the runs that are not in the store.

    Only this process writes to the store, whichever executor is used.

    Args:
        specs: all requested runs.
        store: store of the results.
        tools: configuration of the workers.
        listener: progress callbacks.
        crew: executor of the runs; by default this process, sequentially.

    Raises:
        InvalidFileError: if the store holds a damaged run or one of another version.
        ModelMismatchError: if runs of one source model were made on different trainings of it.
    """
    missing = [spec for spec in specs if spec.plain() not in store]
    listener.begun(len(missing), len(specs) - len(missing))
    if not missing:
        return
    trained = _trained(store)
    with closing((crew or Here()).make(missing, tools, listener)) as made:
        for spec, result in made:
            _check_same_training(spec, result, trained, store)
            store.add(spec.plain(), result)
            listener.ran(spec, result)


def _trained(store: RunStore) -> dict[str, str]:
    """Return the fingerprint of the training behind the stored runs, by key of the source model."""
    with convert_errors(
        lambda why: InvalidFileError(
            f"{store.path} holds a run that is damaged or was made by another version ({why}). Choose a new folder "
            "with --out."
        )
    ):
        return {key_of(run["specification"]["source"]): str(run["result"]["source_fingerprint"]) for run in store}


def _check_same_training(spec: Spec, result: Mapping[str, object], trained: dict[str, str], store: RunStore) -> None:
    """Raise if two trainings of one source model would be mixed: runs are compared on identical models only."""
    fingerprint = str(result["source_fingerprint"])
    if trained.setdefault(spec.source.key, fingerprint) != fingerprint:
        raise ModelMismatchError(
            f"{store.path} holds runs on another training of {spec.source.name}, and methods can only be compared on "
            "the same model. Restore the folder of source models that those runs were made with, or choose a new "
            "folder with --out."
        )


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
