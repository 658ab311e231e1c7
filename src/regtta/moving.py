"""Everything of a model and its optimizer that an adaptation step can change, held so that it can be put back."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from regtta.parameters import Snapshot, Trainable, freeze_all_but, trainable_parameters


class MovingParts:
    """The parameters that a method moves, the head, and all buffers of the adapter's copy.

    Made once for a copy; it freezes everything that does not move and remembers how it began.

    Attributes:
        trainable: what the optimizer steps, by name.
        origin: all that can move as it was when the adapter was made, by name; never changed.
        as_begun: the same, to run the model with.
    """

    def __init__(self, model: nn.Module, head: nn.Linear | None, which: Trainable | None) -> None:
        self.trainable = trainable_parameters(model, head, which)
        freeze_all_but(model, self.trainable.values())
        at_head = set() if head is None else set(head.parameters())
        self._parameters: dict[str, Tensor] = {
            name: parameter
            for name, parameter in model.named_parameters()
            if name in self.trainable or parameter in at_head
        }
        self._live = self._parameters | dict(model.named_buffers())
        self.origin = {name: tensor.detach().clone() for name, tensor in self._live.items()}
        # Apart from the origin: a model may change its buffers even in eval mode.
        self.as_begun = self.origin | {name: value.detach().clone() for name, value in model.named_buffers()}
        self._before = Snapshot(self._live.values())
        self._began_norm = _norm([self.origin[name] for name in self._parameters])

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name: the live tensors."""
        return dict(self._live)

    def remember(self) -> None:
        """Keep everything as it is before a step."""
        self._before.update()

    def restore(self) -> None:
        """Take that step back."""
        self._before.restore()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Make the live tensors equal to ``tensors``, which has the same names."""
        with torch.no_grad():
            for name, tensor in self._live.items():
                tensor.copy_(tensors[name])

    def largest(self) -> Tensor:
        """The largest magnitude of all that is a floating-point number, a scalar: finite if all of them are."""
        floating = [tensor.detach() for tensor in self._live.values() if tensor.is_floating_point()]
        if not floating:
            return torch.zeros((), dtype=torch.float64)
        return nn.utils.get_total_norm(floating, norm_type=float("inf")).double()

    def displacement(self) -> Tensor:
        """``‖θ − θ₀‖₂ / ‖θ₀‖₂`` over the parameters, a scalar; 0 where none can move."""
        if not self._parameters:
            return torch.zeros((), dtype=torch.float64)
        with torch.no_grad():
            gaps = [now - self.origin[name] for name, now in self._parameters.items()]
            return _norm(gaps) / self._began_norm.clamp_min(torch.finfo(torch.float32).tiny)


class OptimizerMemory:
    """The state of an optimizer before a step, to be put back exactly: as if the step had never been."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._kept: dict[Tensor, dict[str, Any]] = {}
        self._groups: list[dict[str, Any]] = []

    def remember(self) -> None:
        """Keep it as it is."""
        self._kept = {
            parameter: {name: _copied(value) for name, value in state.items()}
            for parameter, state in self._optimizer.state.items()
        }
        # A factory of the user's own may give optimizers that change their options as they go.
        self._groups = [
            {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
            for group in self._optimizer.param_groups
        ]

    def restore(self) -> None:
        """Make it what it was."""
        self._optimizer.state.clear()
        self._optimizer.state.update(self._kept)
        self._kept = {}
        for group, options in zip(self._optimizer.param_groups, self._groups, strict=True):
            for added in group.keys() - options.keys() - {"params"}:
                del group[added]
            group.update(options)


def _copied(value: object) -> object:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _norm(tensors: list[Tensor]) -> Tensor:
    return torch.nn.utils.get_total_norm(tensors).double()
