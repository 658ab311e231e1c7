"""Snapshots of everything that a step can change, so that it can be undone exactly."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regtta.engine.optimizer import total_distance, total_norm
from regtta.execution import Flat, flatten_storage, unmovable_tensors
from regtta.models import Trainable, freeze_all_but, recompute_weights, trainable_parameters

_TINY = torch.finfo(torch.float32).tiny
_IMMUTABLE = (bool, int, float, str, type(None))


class Snapshot:
    """Snapshot of tensors that can be restored bit for bit.

    Example:
        >>> x = torch.ones(2)
        >>> before = Snapshot([x])
        >>> _ = x.zero_()
        >>> before.restore(); x
        tensor([1., 1.])
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._live = [tensor.detach() for tensor in tensors]
        self._kept = [tensor.clone() for tensor in self._live]

    def update(self) -> None:
        """Replace the snapshot by the current values."""
        _copy(self._kept, self._live)

    def restore(self) -> None:
        """Restore the tensors to the values of the snapshot, in place."""
        _copy(self._live, self._kept)


def _copy(into: list[Tensor], values: list[Tensor]) -> None:
    if into:
        torch._foreach_copy_(into, values)


class AdaptableState:
    """Adapted parameters, head and buffers of an adapter's copy of the model, with their initial values.

    Created once per copy, and again only after :meth:`unflatten`. It freezes all other parameters and moves the storage
    of the adapted ones into flat tensors.

    Args:
        model: the adapter's copy.
        head: its head, if it is known.
        which: the parameters that the optimizer steps.
        head_moves: True if the method may replace the head, which is then part of every snapshot.

    Attributes:
        trainable: parameters that the optimizer steps, by name.
        origin: initial values of all adaptable tensors, by name; never modified.
        source_tensors: the same values, to run the source model with.
        initial_norm: ``‖θ₀‖₂`` of the parameters, above 0.
        trainable_flats: flat tensors that hold the trainable parameters.
        parameters: flat tensors of all adapted parameters.
        initial_parameters: their initial values.
        floating: all flat tensors of a floating-point dtype.
    """

    def __init__(
        self, model: nn.Module, head: nn.Module | None, which: Trainable | None, *, head_moves: bool = True
    ) -> None:
        self.trainable = trainable_parameters(model, head, which)
        freeze_all_but(model, self.trainable.values())
        at_head = set() if head is None else set(head.parameters())
        parameters = {
            name: parameter
            for name, parameter in model.named_parameters()
            if name in self.trainable or parameter in at_head
        }
        self._live: dict[str, Tensor] = parameters | dict(model.named_buffers())
        self.origin = {name: tensor.detach().clone() for name, tensor in self._live.items()}
        # Separate from the origin: a model may change its buffers even in eval mode.
        self.source_tensors = self.origin | {name: value.detach().clone() for name, value in model.named_buffers()}
        self.initial_norm = max(float(total_norm([p.detach() for p in parameters.values()])), _TINY)
        layers = () if head is None else head.modules()
        self._recomputed = [layer for layer in layers if layer._forward_pre_hooks]
        self._flatten(model, parameters if head_moves else self.trainable)
        self._refresh_head()

    def _flatten(self, model: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
        replaced = [parameter for name, parameter in parameters.items() if name not in self.trainable]
        everything = [*self.trainable.values(), *replaced, *model.buffers()]
        self._flats = flats = flatten_storage(everything, unmovable_tensors(model))
        trainable = [flat.first(set(map(id, self.trainable.values()))) for flat in flats]
        adapted = [flat.first(set(map(id, parameters.values()))) for flat in flats]
        self.trainable_flats: list[Flat] = [flat for flat in trainable if flat is not None]
        self.parameters = [flat.whole for flat in adapted if flat is not None]
        self.initial_parameters = [whole.clone() for whole in self.parameters]
        self.floating = [flat.whole for flat in flats if flat.whole.is_floating_point()]
        self._before = Snapshot([flat.whole for flat in flats])

    def unflatten(self) -> None:
        """Give every tensor a storage of its own again, so that another state can be created for the model."""
        for flat in self._flats:
            for part in flat.parts if len(flat.parts) > 1 else ():
                part.data = part.data.clone()

    def tensors(self) -> dict[str, Tensor]:
        """Return all adaptable tensors by name: the live ones, not copies."""
        return dict(self._live)

    def save_snapshot(self) -> None:
        """Store all values before a step."""
        self._before.update()

    def restore_snapshot(self) -> None:
        """Restore the values of the last snapshot."""
        self._before.restore()
        self._refresh_head()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Set the live tensors to ``tensors``, which has the same names."""
        with torch.no_grad():
            for name, tensor in self._live.items():
                tensor.copy_(tensors[name])
        self._refresh_head()

    def displacement(self) -> float:
        """Return ``‖θ − θ₀‖₂ / ‖θ₀‖₂`` over the parameters; 0 if none are adapted."""
        return float(total_distance(self.parameters, self.initial_parameters)) / self.initial_norm

    def _refresh_head(self) -> None:
        # A weight that is computed from these tensors may be read before the next forward pass recomputes it.
        for layer in self._recomputed:
            recompute_weights(layer)


class OptimizerSnapshot:
    """Snapshot of an optimizer's state, restored exactly, as if the step had never happened.

    Args:
        optimizer: the optimizer.
        fixed_options: True if its options, such as the learning rate, never change.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, *, fixed_options: bool = False) -> None:
        self._optimizer = optimizer
        self._fixed_options = fixed_options
        self._kept: dict[Tensor, dict[str, Any]] = {}
        self._groups: list[dict[str, Any]] = []

    def save_snapshot(self) -> None:
        """Store the state before a step."""
        before = self._kept
        self._kept = {
            parameter: {name: _copied(value, before.get(parameter, {}).get(name)) for name, value in state.items()}
            for parameter, state in self._optimizer.state.items()
        }
        if self._fixed_options:
            return
        # A user's factory may return an optimizer that changes its options from step to step.
        self._groups = [
            {name: _copied(value) for name, value in group.items() if name != "params"}
            for group in self._optimizer.param_groups
        ]

    def restore_snapshot(self) -> None:
        """Restore the state of the last snapshot in place, since a captured step writes to the same tensors."""
        now = dict(self._optimizer.state)
        self._optimizer.state.clear()
        for parameter, kept in self._kept.items():
            state = now.get(parameter, {})
            self._optimizer.state[parameter] = {name: _restored(state.get(name), value) for name, value in kept.items()}
        for group, options in zip(self._optimizer.param_groups, self._groups, strict=not self._fixed_options):
            for added in group.keys() - options.keys() - {"params"}:
                del group[added]
            group.update({name: _copied(value) for name, value in options.items()})


def _copied(value: object, into: object = None) -> object:
    if isinstance(value, _IMMUTABLE):
        return value
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    if isinstance(into, Tensor) and _alike(into, value):
        return into.copy_(value.detach())
    return value.detach().clone()


def _restored(now: object, kept: object) -> object:
    if isinstance(now, Tensor) and isinstance(kept, Tensor) and _alike(now, kept):
        with torch.no_grad():
            return now.copy_(kept)
    return _copied(kept)  # the snapshot must not share memory with the live state


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
