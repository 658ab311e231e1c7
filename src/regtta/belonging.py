"""Whether what an adapter is given belongs together: method, guards, statistics, head, labels, a state."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from regtta.errors import BatchError, HeadMismatchError, MismatchError, StatisticsError
from regtta.guards import Guard
from regtta.identities import same_description
from regtta.methods import Method
from regtta.state_validation import require_mapping
from regtta.statistics import SourceStatistics


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


def check_targets(method: Method, targets: Tensor | None) -> None:
    """Raise where labels are given to a method that takes none, or none to one that does."""
    if targets is not None and not method.takes_targets:
        raise BatchError(f"{method.name} adapts without labels, but was given targets. Leave them out.")
    if targets is None and method.takes_targets:
        raise BatchError(f"{method.name} learns from labels: call adapt(x, targets=y).")


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
    require_mapping("", state)
    for name, value in own.items():
        if not any(same_description(state.get(name), known) for known in (value, (formerly or own)[name])):
            raise MismatchError(
                f"The state is of another {name}: expected {value}, found {state.get(name)}. Make the "
                f"adapter with the {name} that the stream was begun with."
            )
    learner = require_mapping("learner", state.get("learner"))
    if require_mapping("learner/tensors", learner.get("tensors")).keys() != moving:
        raise MismatchError("The state holds other parameters than this adapter moves.")
