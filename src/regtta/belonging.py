"""Whether what an adapter is given belongs together: method, guards, statistics, head, labels, a state."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from regtta.errors import (
    BatchError,
    HeadError,
    HeadMismatchError,
    MismatchError,
    ModelError,
    OptionError,
    StatisticsError,
)
from regtta.execution import Execution
from regtta.features import linear_layers
from regtta.guards import Guard, OutlierRows
from regtta.identities import same_description
from regtta.methods import GradientMethod, Method
from regtta.methods.base import OPTIMIZERS
from regtta.options import check_bool, described
from regtta.state_validation import require_mapping
from regtta.statistics import SourceStatistics


def check_arguments(
    *, method: object, source: object, inputs: object, execution: object, allow_mismatch: object
) -> None:
    """Raise unless the arguments of an adapter are of their types; each message shows how to make one that is."""
    if not isinstance(method, Method):
        found = f"the class {method.__name__} without its ()" if isinstance(method, type) else repr(method)
        raise OptionError(f"Expected a method such as regtta.SSA(), found {found}. regtta.method(name) makes one.")
    if source is not None and not isinstance(source, SourceStatistics):
        raise StatisticsError(
            f"Expected source to be SourceStatistics, found {source!r:.80}. regtta.SourceStatistics.load(path) reads "
            "them from their file, and regtta.collect(model, loader) makes them."
        )
    if inputs is not None and not isinstance(inputs, str):
        raise OptionError(
            f"Expected inputs to be the key of the input in dict batches, a text, found {inputs!r}. Leave it out for "
            "batches that are tensors or tuples."
        )
    if not isinstance(execution, Execution):
        raise OptionError(
            f"Expected execution to be a regtta.Execution, found {execution!r}. Pass regtta.FAST or "
            "regtta.Execution(precision=...), or leave it out."
        )
    check_bool("allow_mismatch", allow_mismatch)


def check_head_name(model: nn.Module, head: object) -> None:
    """Raise unless ``head`` is a text, or None to find it."""
    if head is not None and not isinstance(head, str):
        raise HeadError(
            f"Expected head to be the name of a layer, found {head!r}. Pass its name in model.named_modules(); linear "
            f"layers here: {linear_layers(model)}."
        )


def check_needs(method: Method, guards: Sequence[Guard], source: SourceStatistics | None) -> None:
    """Raise where statistics are needed and there are none."""
    name = type(method).__name__
    if source is None and method.needs_source:
        raise StatisticsError(
            f"{name} needs source statistics. Collect them once, where the source data lies: "
            f"source = regtta.collect(model, loader), then Adapter(model, {name}(), source)."
        )
    needy = [type(guard).__name__ for guard in guards if guard.needs_source]
    if source is None and needy:
        raise StatisticsError(
            f"The guards {', '.join(needy)} compare with the source, and there are no statistics. Pass "
            "source=regtta.collect(model, loader), or leave them out."
        )
    if source is not None and (method.needs_source or needy):
        source.require_variance()


def check_width(source: SourceStatistics | None, name: str, head: nn.Linear) -> None:
    """Raise unless ``head`` takes as many features as the statistics are of."""
    if source is not None and head.in_features != source.dimensions:
        raise HeadMismatchError(
            f"The head {name!r} takes {head.in_features} features, but the statistics are of "
            f"{source.dimensions}. Collect them on this model and head."
        )


def check_complex(method: Method, moving: Mapping[str, nn.Parameter]) -> None:
    """Raise where a fused optimizer would have to move complex parameters, which torch has none for."""
    found = [name for name, parameter in moving.items() if parameter.is_complex()]
    chosen = method.optimizer if isinstance(method, GradientMethod) else None
    if found and isinstance(chosen, str) and getattr(OPTIMIZERS[chosen], "keywords", {}).get("fused"):
        raise ModelError(
            f"The parameters {found} are complex, and torch's fused optimizers such as {chosen!r} move real ones "
            "alone. Pass one that is not fused, such as optimizer=torch.optim.Adam, or leave those parameters as they "
            'are with trainable="affine".'
        )


def check_targets(method: Method, targets: object) -> None:
    """Raise where labels are given to a method that takes none, or none to one that does, or not as a tensor."""
    if targets is not None and not method.takes_targets:
        raise BatchError(f"{method.name} adapts without labels, but was given targets. Leave them out.")
    if targets is None and method.takes_targets:
        raise BatchError(f"{method.name} learns from labels: call adapt(x, targets=y).")
    if targets is not None and not isinstance(targets, Tensor):
        remedy = "torch.from_numpy(targets)" if isinstance(targets, np.ndarray) else "torch.tensor(targets)"
        raise BatchError(f"Expected targets to be a tensor, found {type(targets).__name__}. Pass {remedy}.")


def with_later_guards(state: Mapping[str, Any], guards: Sequence[Guard]) -> Mapping[str, Any]:
    """Return a state of version 0.1.0 with empty states of the guards that joined the presets after it.

    Any other state is returned as it is: it holds as many guards as ``guards``, or is refused by :func:`check_state`.
    """
    found, watches = state.get("guards"), state.get("watches")
    earlier = [number for number, guard in enumerate(guards) if not isinstance(guard, OutlierRows)]
    if not isinstance(found, list) or not isinstance(watches, Mapping) or len(earlier) == len(guards):
        return state
    if len(found) != len(earlier) or set(watches) != {str(number) for number in range(len(found))}:
        return state
    descriptions = [described(guard) for guard in guards]
    states: list[object] = [{} for _ in guards]
    for number, place in enumerate(earlier):
        descriptions[place], states[place] = found[number], watches[str(number)]
    return {**state, "guards": descriptions, "watches": {str(place): each for place, each in enumerate(states)}}


def check_state(
    state: Mapping[str, Any],
    own: Mapping[str, object],
    moving: Collection[str],
    *,
    formerly: Mapping[str, object] | None = None,
) -> None:
    """Raise unless ``state`` is of the adapter whose model, method and guards ``own`` describes.

    Args:
        state: of a stream.
        own: what describes this adapter, by name.
        moving: names of the tensors that move.
        formerly: what version 0.1.0 would have written in place of ``own``.
    """
    for name, value in own.items():
        if not any(same_description(state.get(name), known) for known in (value, (formerly or own)[name])):
            raise MismatchError(
                f"The state is of another {name}: expected {value}, found {state.get(name)}. Make the "
                f"adapter with the {name} that the stream was begun with."
            )
    learner = require_mapping("learner", state.get("learner"))
    if require_mapping("learner/tensors", learner.get("tensors")).keys() != moving:
        raise MismatchError("The state holds other parameters than this adapter moves.")
