"""Everything of a model and its optimizer that an adaptation step can change, held so that it can be put back."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regtta.execution import Flat, bound_in_place, lay_together
from regtta.models import Snapshot, Trainable, freeze_all_but, recompute_weights, trainable_parameters

_TINY = torch.finfo(torch.float32).tiny
_IMMUTABLE = (bool, int, float, str, type(None))


class MovingParts:
    """The parameters that a method moves, the head, and all buffers of the adapter's copy.

    Made once for a copy; it freezes everything that does not move, lays what does end to end, and remembers how it
    began.

    Args:
        model: the copy.
        head: its head, where it is known.
        which: what the optimizer is to step.
        head_moves: whether the head may be replaced; else it is neither remembered at every step nor looked at.

    Attributes:
        trainable: what the optimizer steps, by name.
        origin: all that can move as it was when the adapter was made, by name; never changed.
        as_begun: the same, to run the model with.
        began_norm: ``‖θ₀‖₂`` of the parameters, more than 0.
    """

    def __init__(
        self, model: nn.Module, head: nn.Linear | None, which: Trainable | None, *, head_moves: bool = True
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
        # Apart from the origin: a model may change its buffers even in eval mode.
        self.as_begun = self.origin | {name: value.detach().clone() for name, value in model.named_buffers()}
        self.began_norm = max(float(total_norm([p.detach() for p in parameters.values()])), _TINY)
        self._head = head
        self._lay_together(model, parameters if head_moves else self.trainable)
        self._refresh_head()

    def _lay_together(self, model: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
        replaced = [parameter for name, parameter in parameters.items() if name not in self.trainable]
        everything = [*self.trainable.values(), *replaced, *model.buffers()]
        flats = lay_together(everything, bound_in_place(model))
        steppable = [flat.first(set(map(id, self.trainable.values()))) for flat in flats]
        moving = [flat.first(set(map(id, parameters.values()))) for flat in flats]
        self.gradients = Gradients([flat for flat in steppable if flat is not None])
        self._parameters = [flat.whole for flat in moving if flat is not None]
        self._began = [whole.clone() for whole in self._parameters]
        self._floating = [flat.whole for flat in flats if flat.whole.is_floating_point()]
        self._before = Snapshot([flat.whole for flat in flats])

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name: the live tensors."""
        return dict(self._live)

    def remember(self) -> None:
        """Keep everything as it is before a step."""
        self._before.update()

    def restore(self) -> None:
        """Take that step back."""
        self._before.restore()
        self._refresh_head()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Make the live tensors equal to ``tensors``, which has the same names."""
        with torch.no_grad():
            for name, tensor in self._live.items():
                tensor.copy_(tensors[name])
        self._refresh_head()

    def _refresh_head(self) -> None:
        # A weight that is computed from these tensors may be read before the next pass computes it again.
        if self._head is not None and self._head._forward_pre_hooks:
            recompute_weights(self._head)

    def largest(self) -> Tensor:
        """The largest magnitude of all that is a floating-point number, a scalar: finite if all of them are."""
        return total_norm(self._floating, order=float("inf"))

    def distance(self) -> Tensor:
        """``‖θ − θ₀‖₂`` over the parameters, a scalar; 0 where none can move."""
        gaps = [torch.dist(now, began) for now, began in zip(self._parameters, self._began, strict=True)]
        return _combined(gaps, 2.0)

    def displacement(self) -> float:
        """``‖θ − θ₀‖₂ / ‖θ₀‖₂``."""
        return float(self.distance()) / self.began_norm


class Gradients:
    """The gradients of what is stepped, laid out as it is.

    Attributes:
        steppable: parameters that hold the values of many, each with its gradient: for optimizers that treat every
            number alike.
        flats: what each of them holds.
    """

    def __init__(self, flats: list[Flat]) -> None:
        self.flats = flats
        self.steppable = [nn.Parameter(flat.whole) for flat in flats]
        self._wholes = [torch.zeros_like(flat.whole) for flat in flats]
        self._parts: list[Tensor] = []
        self._views: list[Tensor] = []
        for flat, parameter, whole in zip(flats, self.steppable, self._wholes, strict=True):
            parameter.grad = whole
            self._parts += flat.parts
            self._views += [whole] if len(flat.parts) == 1 and flat.parts[0].shape == whole.shape else flat.like(whole)

    def take(self, loss: Tensor) -> None:
        """Make them those of ``loss``, 0 where it does not depend on a parameter."""
        found = torch.autograd.grad(loss, self._parts, materialize_grads=True)
        dense = [gradient.to_dense() if gradient.is_sparse else gradient for gradient in found]  # of embeddings
        torch._foreach_copy_(self._views, dense)

    def hand_out(self) -> None:
        """Give every parameter its own, for an optimizer that takes the parameters one by one."""
        for part, view in zip(self._parts, self._views, strict=True):
            part.grad = view

    def norm(self) -> Tensor:
        """The norm of all of them, a scalar."""
        return total_norm(self._wholes)

    def __iter__(self) -> Iterator[Tensor]:
        """The gradients laid together."""
        return iter(self._wholes)


class OptimizerMemory:
    """The state of an optimizer before a step, to be put back exactly: as if the step had never been.

    Args:
        optimizer: whose state it is.
        fixed_options: whether its options, such as the learning rate, stay what they are.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, *, fixed_options: bool = False) -> None:
        self._optimizer = optimizer
        self._fixed_options = fixed_options
        self._kept: dict[Tensor, dict[str, Any]] = {}
        self._groups: list[dict[str, Any]] = []

    def remember(self) -> None:
        """Keep it as it is."""
        before = self._kept
        self._kept = {
            parameter: {name: _copied(value, before.get(parameter, {}).get(name)) for name, value in state.items()}
            for parameter, state in self._optimizer.state.items()
        }
        if self._fixed_options:
            return
        # A factory of the user's own may give optimizers that change their options as they go.
        self._groups = [
            {name: _copied(value) for name, value in group.items() if name != "params"}
            for group in self._optimizer.param_groups
        ]

    def restore(self) -> None:
        """Make it what it was; tensors stay where they are, since a captured step writes there."""
        now = dict(self._optimizer.state)
        self._optimizer.state.clear()
        for parameter, kept in self._kept.items():
            state = now.get(parameter, {})
            self._optimizer.state[parameter] = {name: _put_back(state.get(name), value) for name, value in kept.items()}
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


def _put_back(now: object, kept: object) -> object:
    if isinstance(now, Tensor) and isinstance(kept, Tensor) and _alike(now, kept):
        with torch.no_grad():
            return now.copy_(kept)
    return _copied(kept)  # what is kept stays apart from what is live


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device


def total_norm(tensors: Sequence[Tensor], order: float = 2.0) -> Tensor:
    """The norm of all numbers of ``tensors`` together, a scalar; 0 without any."""
    return _combined([torch.linalg.vector_norm(tensor, order) for tensor in tensors], order)


def _combined(norms: Sequence[Tensor], order: float) -> Tensor:
    if len(norms) < 2:
        return norms[0] if norms else torch.zeros(())
    together: Tensor = torch.linalg.vector_norm(
        torch.stack([n.to(norms[0].device, torch.float64) for n in norms]), order
    )
    return together
