"""Making the runs that are missing, whoever makes them, and keeping every result as soon as it is there."""

from collections.abc import Mapping, Sequence
from contextlib import closing

from regtta.errors import ForeignFileError, ModelMismatchError
from regtta.experiments.reproduce.crews.here import Here
from regtta.experiments.reproduce.roles import Crew, Kit, Listener, S, Spec
from regtta.experiments.store import RunStore, key_of
from regtta.reading import clear_errors


def sweep(specs: Sequence[S], store: RunStore, tools: Kit[S], listener: Listener, *, crew: Crew | None = None) -> None:
    """Make the runs that the store does not hold.

    Whoever makes them, this process alone writes to the store.

    Args:
        specs: all that are wanted.
        store: of the results.
        tools: to work with.
        listener: told of all that happens.
        crew: who makes them; by default this process, one after another.
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
    """Which training the runs of each source model were made on."""
    with clear_errors(
        lambda why: ForeignFileError(
            f"{store.path} holds a run that is damaged, or that another version made ({why}). Begin a new folder by "
            "--out."
        )
    ):
        return {key_of(run["specification"]["source"]): str(run["result"]["source_fingerprint"]) for run in store}


def _check_same_training(spec: Spec, result: Mapping[str, object], trained: dict[str, str], store: RunStore) -> None:
    """Refuse to mix two trainings of one source model, whose runs would be compared as if they shared it."""
    mark = str(result["source_fingerprint"])
    if trained.setdefault(spec.source.key, mark) != mark:
        raise ModelMismatchError(
            f"{store.path} holds runs on another training of {spec.source.name}, and methods are compared on the same "
            "model alone. Put the folder of source models back that those runs were made with, or begin a new folder "
            "by --out."
        )
