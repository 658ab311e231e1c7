"""Candidates of a selection: names and methods, from simple to elaborate."""

from collections.abc import Iterable, Mapping

from regtta.errors import OptionError
from regtta.methods import METHODS, SSA, BNAdapt, Method, NoAdaptation, create_method, method_options
from regtta.options import field_types

Candidates = Iterable[Method | str] | Mapping[str, Method | str]


def default_candidates() -> dict[str, Method]:
    """Return the candidates of a selection that names none, from simple to elaborate.

    The unadapted model, BatchNorm by the target (while adapting, and once if that method is installed), SSA, SSA with
    BatchNorm as trained, and ``auto`` if it is installed.

    Example:
        >>> list(default_candidates())[:2]
        ['source', 'bn_adapt']
    """
    methods: list[Method] = [NoAdaptation(), BNAdapt()]
    methods += [METHODS[name]() for name in ("recalibrate_once",) if name in METHODS]
    methods += [SSA(), SSA(batch_norm="source", k="auto", lr=1e-2)]
    methods += [METHODS[name]() for name in ("auto",) if name in METHODS]
    return {candidate_name(method): method for method in methods}


def read_candidates(candidates: Candidates | None) -> dict[str, Method]:
    """Return the methods by name, the unadapted model first.

    Args:
        candidates: methods or texts such as ``"ssa"`` and ``"ssa:k=auto,lr=0.01"``, in a list or by name; None for
            :func:`default_candidates`. The unadapted model is added if it is missing.

    Example:
        >>> list(read_candidates(["bn_adapt", "ssa:k=25"]))
        ['source', 'bn_adapt', 'ssa:k=25']
    """
    if candidates is None:
        return default_candidates()
    if isinstance(candidates, Mapping):
        given = [(str(name), _read(value)) for name, value in candidates.items()]
    elif isinstance(candidates, Iterable) and not isinstance(candidates, str):
        given = [(each if isinstance(each, str) else candidate_name(each), _read(each)) for each in candidates]
    else:
        raise OptionError(
            f"Expected candidates to be a list of methods or names, or a dict of them, found {candidates!r:.80}. Pass "
            "None for the default ones."
        )
    baselines = [(name, method) for name, method in given if isinstance(method, NoAdaptation)]
    others = [(name, method) for name, method in given if not isinstance(method, NoAdaptation)]
    ordered = [*(baselines or [(NoAdaptation.name, NoAdaptation())]), *others]
    names = [name for name, _ in ordered]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise OptionError(f"The candidate {repeated!r} is given twice. Give each a name of its own in a dict.")
    if not others:
        raise OptionError("Expected at least one candidate beside the unadapted model. Pass None for the default ones.")
    return dict(ordered)


def candidate_name(method: Method) -> str:
    """Return the name of a method with its options other than the defaults, as the command line takes it.

    Example:
        >>> candidate_name(SSA(k="auto", lr=0.01))
        'ssa:lr=0.01,k=auto'
    """
    name = getattr(method, "name", type(method).__name__)
    if name not in METHODS:  # such as a sum, whose name has the terms
        return name
    default = METHODS[name]()
    changed = {
        option: getattr(method, option)
        for option in field_types(type(method))
        if repr(getattr(method, option)) != repr(getattr(default, option))
    }
    return name + (":" + ",".join(f"{option}={value}" for option, value in changed.items()) if changed else "")


def _read(candidate: Method | str) -> Method:
    if isinstance(candidate, str):
        name, _, settings = candidate.partition(":")
        assignments = [text.strip() for text in settings.split(",") if text.strip()]
        candidate = create_method(name, **method_options(name, assignments))
    if not isinstance(candidate, Method):
        raise OptionError(
            f"Expected candidates to be methods or their names, found {candidate!r:.80}. Pass regtta.SSA() or 'ssa'."
        )
    if candidate.takes_targets:
        raise OptionError(
            f"{candidate.name} learns from labels, and candidates adapt without any. Leave it out: it would be scored "
            "on the labels that it learned from."
        )
    return candidate
