"""Running the missing runs of a sweep, and the folder of its results."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from regtta.errors import (
    ExistingFileError,
    FileError,
    InvalidFileError,
    MissingFileError,
    ModelMismatchError,
    OptionError,
)
from regtta.persistence import convert_errors
from regtta_bench.sweep.executors.local import SequentialExecutor
from regtta_bench.sweep.interfaces import Executor, ProgressListener, S, Spec, WorkerConfig
from regtta_bench.sweep.store import RunStore, compute_key


def run_missing(
    specs: Sequence[S],
    store: RunStore,
    config: WorkerConfig[S],
    listener: ProgressListener,
    *,
    executor: Executor | None = None,
) -> None:
    """Execute the runs that are not in the store.

    Only this process writes to the store, whichever executor is used.

    Args:
        specs: all requested runs.
        store: store of the results.
        config: configuration of the workers.
        listener: progress callbacks.
        executor: executor of the runs; a :class:`SequentialExecutor` by default.

    Raises:
        InvalidFileError: if the store holds a damaged run or one of another version.
        ModelMismatchError: if runs of one source model were made on different trainings of it.
    """
    missing = [spec for spec in specs if spec.to_dict() not in store]
    listener.on_start(len(missing), len(specs) - len(missing))
    if not missing:
        return
    fingerprints = _training_fingerprints(store)
    with closing((executor or SequentialExecutor()).execute(missing, config, listener)) as completed:
        for spec, result in completed:
            _check_same_training(spec, result, fingerprints, store)
            store.add(spec.to_dict(), result)
            listener.on_run(spec, result)


def _training_fingerprints(store: RunStore) -> dict[str, str]:
    """Return the fingerprint of the training behind the stored runs, by key of the source model."""
    with convert_errors(
        lambda why: InvalidFileError(
            f"{store.path} holds a run that is damaged or was made by another version ({why}). Choose a new folder "
            "with --out."
        )
    ):
        return {compute_key(run["specification"]["source"]): str(run["result"]["source_fingerprint"]) for run in store}


def _check_same_training(
    spec: Spec, result: Mapping[str, object], fingerprints: dict[str, str], store: RunStore
) -> None:
    """Raise if two trainings of one source model would be mixed: runs are compared on identical models only."""
    fingerprint = str(result["source_fingerprint"])
    if fingerprints.setdefault(spec.source.key, fingerprint) != fingerprint:
        raise ModelMismatchError(
            f"{store.path} holds runs on another training of {spec.source.name}, and methods can only be compared on "
            "the same model. Restore the folder of source models that those runs were made with, or choose a new "
            "folder with --out."
        )


def join_runs(store: RunStore, others: Iterable[Path]) -> int:
    """Append the runs of other files that ``store`` does not have yet, and return their number.

    All files are checked before the first run is appended.

    Args:
        store: the store to append to.
        others: files of runs, for example of other source models or other machines.

    Raises:
        MissingFileError: if a file does not exist.
        ModelMismatchError: if runs of one source model were made on different trainings of it.
    """
    fingerprints = _training_fingerprints(store)
    joined: dict[str, Mapping[str, Any]] = {}
    for path in others:
        if not path.is_file():
            raise MissingFileError(f"Expected a file of runs to join, found none at {path}. Check the path.")
        other = RunStore(path)
        for source, fingerprint in _training_fingerprints(other).items():
            if fingerprints.setdefault(source, fingerprint) != fingerprint:
                raise ModelMismatchError(
                    f"{path} holds runs on another training of a source model than the runs it is joined with, and "
                    "methods can only be compared on the same model. Join only one of them."
                )
        joined |= {str(record["key"]): record for record in other if record["specification"] not in store}
    for record in joined.values():
        store.add(record["specification"], record["result"])
    return len(joined)


RUNS_FILE = "runs.jsonl"
MODELS_FOLDER = "models"


def check_results_folder(out: Path, *, tables_only: bool = False) -> None:
    """Raise if the folder holds other files, or no runs although ``tables_only`` needs them."""
    if out.exists() and not out.is_dir():
        raise OptionError(f"{out} is a file. Name a folder with --out.")
    if tables_only and not (out / RUNS_FILE).is_file():
        raise MissingFileError(
            f"There are no runs in {out}: expected {out / RUNS_FILE}. Run without --tables-only first."
        )
    # A command that was stopped during its first training leaves only the folder of models.
    if out.is_dir() and not (out / RUNS_FILE).exists() and any(path.name != MODELS_FOLDER for path in out.iterdir()):
        raise ExistingFileError(f"{out} holds other files and no {RUNS_FILE}. Name a new or empty folder with --out.")


def models_folder(out: Path, named: Path | None) -> Path:
    """Return the folder of source models: ``named`` if given, else one inside ``out``."""
    return (named or out / MODELS_FOLDER).absolute()


def run_sweep(
    out: Path, runs: Sequence[S], config: WorkerConfig[S], listener: ProgressListener, executor: Executor
) -> None:
    """Execute the missing runs with ``executor``; the folder is created only once its checks have passed."""
    executor.check(runs, config)
    make_folder(out)
    run_missing(runs, RunStore(out / RUNS_FILE), config, listener, executor=executor)


def make_folder(out: Path) -> None:
    """Create the folder of results; raise ``FileError`` if it cannot be created or written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"The folder {out} cannot be created: {error}.") from error
    if not os.access(out, os.W_OK):
        raise FileError(f"The folder {out.resolve()} cannot be written to.")


def absolute_path(path: Path | None) -> Path | None:
    """Return ``path`` as an absolute path, valid in processes with another working directory."""
    return None if path is None else path.absolute()
