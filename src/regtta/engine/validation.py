"""Checks that model, method, guards, statistics and a saved state belong together."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regtta.engine.custom_optimizer_state import CustomOptimizerState
from regtta.engine.flat_optimizer_state import FlatOptimizerState
from regtta.errors import (
    BatchError,
    HeadError,
    HeadMismatchError,
    MismatchError,
    ModelError,
    NewerFormatError,
    OptionError,
    StatisticsError,
)
from regtta.execution import Execution
from regtta.guards import Guard, OutlierRows, RepairableShift
from regtta.methods import OPTIMIZERS, GradientMethod, Method
from regtta.models import BatchNormSwitch, Head, affine_layers, non_negative_buffers
from regtta.options import check_bool
from regtta.persistence import (
    require_count,
    require_like,
    require_mapping,
    same_description,
    state_error,
    to_dict,
    validate_part,
)
from regtta.statistics import SourceStatistics


def check_device(device: str | torch.device) -> None:
    """Raise an OptionError unless tensors can be created on ``device`` and read again."""
    try:
        torch.empty(1, device=torch.device(device)).cpu()
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        raise OptionError(
            f'Expected a device that can be used here, such as "cpu" or "cuda:0", found {device!r} '
            f"({str(error).splitlines()[0]})."
        ) from error


def check_arguments(*, method: object, source: object, execution: object, allow_mismatch: object) -> None:
    """Raise unless the arguments of an adapter have the expected types."""
    if not isinstance(method, Method):
        found = f"the class {method.__name__}, not an instance" if isinstance(method, type) else repr(method)
        raise OptionError(
            f"Expected a method such as regtta.SSA(), found {found}. regtta.create_method(name) creates one."
        )
    if source is not None and not isinstance(source, SourceStatistics):
        raise StatisticsError(
            f"Expected source to be SourceStatistics, found {source!r:.80}. Load them with "
            "regtta.SourceStatistics.load(path), or compute them with regtta.collect(model, loader)."
        )
    if not isinstance(execution, Execution):
        raise OptionError(
            f"Expected execution to be a regtta.Execution, found {execution!r}. Pass regtta.FAST or "
            "regtta.Execution(precision=...), or omit it."
        )
    check_bool("allow_mismatch", allow_mismatch)


def check_head_name(model: nn.Module, head: object) -> None:
    """Raise a HeadError unless ``head`` is a string, or None for automatic detection."""
    if head is not None and not isinstance(head, str):
        raise HeadError(
            f"Expected head to be the name of a layer, found {head!r}. Pass its name in model.named_modules(); linear "
            f"layers of this model: {affine_layers(model)}."
        )


def check_needs(method: Method, guards: Sequence[Guard], source: SourceStatistics | None) -> None:
    """Raise a StatisticsError if the method or a guard needs source statistics and none are given."""
    name = type(method).__name__
    if source is None and method.needs_source:
        raise StatisticsError(
            f"{name} needs source statistics. Collect them once, where the source data is available: "
            f"source = regtta.collect(model, loader), then Adapter(model, {name}(), source)."
        )
    needing = [type(guard).__name__ for guard in guards if guard.needs_source]
    if source is None and needing:
        raise StatisticsError(
            f"The guards {', '.join(needing)} need source statistics, and none were given. Pass "
            "source=regtta.collect(model, loader), or remove these guards."
        )
    if source is not None and (method.needs_source or needing):
        source.require_variance()


def check_width(source: SourceStatistics | None, name: str, head: nn.Linear) -> None:
    """Raise a HeadMismatchError unless the head's input size equals the feature dimension of the statistics."""
    if source is not None and head.in_features != source.dimensions:
        raise HeadMismatchError(
            f"The head {name!r} takes {head.in_features} features, but the statistics have "
            f"{source.dimensions}. Collect them with this model and head."
        )


def check_replaceable(method: Method, head: Head) -> None:
    """Raise a ModelError if the method replaces the weights of the head, and the head is not one ``nn.Linear``."""
    if method.replaces_head and not head.is_linear:
        layers = ", ".join(f"{name} ({type(layer).__name__})" for name, layer in head.modules.items())
        raise ModelError(
            f"{method.name} replaces the weights of the head, which must be one nn.Linear; the head of this model is "
            f"{layers}. Use another method, such as SSA."
        )


def check_complex(method: Method, moving: Mapping[str, nn.Parameter]) -> None:
    """Raise a ModelError if a fused optimizer would have to update complex parameters, which torch does not support."""
    found = [name for name, parameter in moving.items() if parameter.is_complex()]
    chosen = method.optimizer if isinstance(method, GradientMethod) else None
    if found and isinstance(chosen, str) and getattr(OPTIMIZERS[chosen], "keywords", {}).get("fused"):
        raise ModelError(
            f"The parameters {found} are complex, but torch's fused optimizers such as {chosen!r} support real "
            "parameters only. Pass an optimizer that is not fused, such as optimizer=torch.optim.Adam, or exclude "
            'these parameters with trainable="affine".'
        )


def check_targets(method: Method, targets: object) -> None:
    """Raise a BatchError unless ``targets`` is a tensor for a method that learns from labels, and None for others."""
    if targets is not None and not method.takes_targets:
        raise BatchError(f"{method.name} adapts without labels, but targets were given. Omit them.")
    if targets is None and method.takes_targets:
        raise BatchError(f"{method.name} learns from labels, but no targets were given. Call adapt(x, targets=y).")
    if targets is not None and not isinstance(targets, Tensor):
        remedy = "torch.from_numpy(targets)" if isinstance(targets, np.ndarray) else "torch.tensor(targets)"
        raise BatchError(f"Expected targets to be a tensor, found {type(targets).__name__}. Pass {remedy}.")


def with_required_guards(method: Method, guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """Return ``guards``, with RepairableShift added for a selective method unless it is among them."""
    if not method.selective or any(isinstance(guard, RepairableShift) for guard in guards):
        return guards
    return (*guards, RepairableShift())


# Guards that were added to the presets, by what a state may lack: the latest of them, or all of them (version 0.1.0).
_LATER_GUARDS: tuple[tuple[type[Guard], ...], ...] = ((RepairableShift,), (RepairableShift, OutlierRows))


def with_later_guards(state: Mapping[str, Any], guards: Sequence[Guard]) -> Mapping[str, Any]:
    """Return an earlier state with empty states added for the guards that later versions added to the presets.

    Any other state is returned unchanged; :func:`check_state` rejects it if its guards differ from ``guards``.
    """
    found, watches = state.get("guards"), state.get("watches")
    if not isinstance(found, list) or not isinstance(watches, Mapping) or len(found) == len(guards):
        return state
    if set(watches) != {str(number) for number in range(len(found))}:
        return state
    for later in _LATER_GUARDS:
        earlier = [number for number, guard in enumerate(guards) if not isinstance(guard, later)]
        if len(earlier) == len(found):
            break
    else:
        return state
    descriptions = [to_dict(guard) for guard in guards]
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
    """Raise a MismatchError unless ``state`` belongs to an adapter with the model, method and guards in ``own``.

    Args:
        state: state of a stream.
        own: descriptions of this adapter's components, by name.
        moving: names of the tensors that adaptation changes.
        formerly: the descriptions that version 0.1.0 would have written in place of ``own``.
    """
    for name, value in own.items():
        if not any(same_description(state.get(name), known) for known in (value, (formerly or own)[name])):
            raise MismatchError(
                f"The {name} of the state and of the adapter differ: expected {value}, found {state.get(name)}. Create "
                f"the adapter with the {name} that the stream was started with."
            )
    learner = require_mapping("learner", state.get("learner"))
    if require_mapping("learner/tensors", learner.get("tensors")).keys() != moving:
        raise MismatchError(
            "The state holds other parameters than this adapter updates. Create the adapter with the same trainable "
            "parameters that the stream was started with."
        )


STATE_FORMAT = 2  # format 1 stored the optimizer's state in memory order

OptimizerState = FlatOptimizerState | CustomOptimizerState


@dataclass(frozen=True)
class LearnerParts:
    """Components of a learner that its state is validated against.

    Attributes:
        model: the copy of the model that is adapted.
        origin: initial values of all tensors that adaptation changes, by name.
        optimizer: the optimizer's state, if there is an optimizer.
        rule: the update rule of the method.
        batch_norm: the BatchNorm layers.
    """

    model: nn.Module
    origin: Mapping[str, Tensor]
    optimizer: OptimizerState | None
    rule: object
    batch_norm: BatchNormSwitch

    def validated(self, state: object, path: str) -> dict[str, Any]:
        """Validate a state and return it in the current format, converted from an earlier format if necessary.

        Nothing is loaded. States of user-defined rules and optimizers are validated as far as their schema is known.

        Raises:
            StateError: the state is invalid.
            NewerFormatError: the state has a newer format.
        """
        found = {"format": 1, **require_mapping(path, state)}
        if require_count(f"{path}/format", found["format"], minimum=1) > STATE_FORMAT:
            raise NewerFormatError(
                f"Expected a state of format {STATE_FORMAT} or older, found format {found['format']}. Upgrade regtta."
            )
        require_mapping(path, found, ("format", "tensors", "optimizer", "rule", "batch_norm"))
        self._validate_tensors(found["tensors"], f"{path}/tensors")
        if self.optimizer is None:
            require_mapping(f"{path}/optimizer", found["optimizer"], ())
        else:
            if found["format"] == 1:
                found["optimizer"] = self.optimizer.upgraded(found["optimizer"], f"{path}/optimizer")
            self.optimizer.validate(found["optimizer"], f"{path}/optimizer")
        validate_part(self.rule, found["rule"], f"{path}/rule")
        counts = require_mapping(f"{path}/batch_norm", found["batch_norm"], self.batch_norm.state_dict().keys())
        for name, count in counts.items():
            require_count(f"{path}/batch_norm/{name}", count)
        return found | {"format": STATE_FORMAT}

    def _validate_tensors(self, state: object, path: str) -> None:
        least_zero = non_negative_buffers(self.model)
        for name, tensor in require_mapping(path, state, self.origin.keys()).items():
            began = self.origin[name]
            value = require_like(f"{path}/{name}", tensor, began)
            if name in least_zero and not bool(((value >= 0) | (value == began.to(value.device))).all()):
                raise state_error(f"{path}/{name}", "at least 0 everywhere", float(value.min()))
