"""Execution of missing runs by any executor, storing every result as soon as it is available."""

from collections.abc import Mapping, Sequence
from contextlib import closing

from regtta.errors import ForeignFileError, ModelMismatchError
from regtta.experiments.reproduce.crews.here import Here
from regtta.experiments.reproduce.roles import Crew, Kit, Listener, S, Spec
from regtta.experiments.store import RunStore, key_of
from regtta.reading import clear_errors


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
        ForeignFileError: if the store holds a damaged run or one of another version.
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
    with clear_errors(
        lambda why: ForeignFileError(
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
