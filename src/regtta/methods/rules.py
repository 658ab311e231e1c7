"""Update rules of methods: the batch that a rule receives and the updates that it may return."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regtta.errors import BatchError
from regtta.models import Forward, Inputs
from regtta.persistence import require_mapping, require_tensor, state_error


@dataclass(frozen=True)
class Batch:
    """A batch and its forward pass, as passed to :meth:`Rule.update`.

    Attributes:
        inputs: ``(B, ...)`` on the model's device, or :class:`~regtta.models.ModelInputs` for a model that takes
            several tensors. In a process group, the rows of this process; features, outputs and targets are those of
            all processes.
        features: inputs of the head, ``(B, D)``; ``(B, 0)`` if the method needs no head, and one row for every step of
            every sequence, ``(B*T, D)``, for a model with one output per step.
        outputs: outputs of the model.
        targets: labels, if the method takes them.
        forward: runs the model on other inputs in the same mode, without updating BatchNorm's running statistics.
        repeated: True if this is a further step on the same samples.
        gather: gathers values ``(B, ...)``, one per row of ``inputs``, from all processes; differentiable.
    """

    inputs: Inputs
    features: Tensor
    outputs: Tensor
    targets: Tensor | None
    forward: Callable[[Inputs], Forward]
    repeated: bool = False
    gather: Callable[[Tensor], Tensor] = lambda values: values

    def require_one_input(self, method: str) -> Tensor:
        """Return the inputs, or raise BatchError if the model takes several tensors."""
        if isinstance(self.inputs, Tensor):
            return self.inputs
        raise BatchError(
            f"{method} transforms images, and works for models that take one tensor; this model takes "
            f"{len(self.inputs.tensors)}. Use another method, such as SSA."
        )

    def require_targets(self) -> Tensor:
        """Return the labels, or raise BatchError if there are none."""
        if self.targets is None:
            raise BatchError("This method learns from labels: call adapt(x, targets=y).")
        return self.targets


@dataclass(frozen=True)
class NewHead:
    """Update that replaces the head: ``weight`` ``(O, D)`` and ``bias`` ``(O,)``; ``None`` keeps the present one."""

    weight: Tensor | None
    bias: Tensor | None = None


@dataclass(frozen=True)
class Skip:
    """Update that leaves the model unchanged because the batch is unsuitable, with the reason."""

    reason: str


@dataclass(frozen=True)
class Buffered:
    """Update that stores the batch and takes no step yet, with the reason."""

    reason: str


Update = Tensor | NewHead | Skip | Buffered | None


class Rule(ABC):
    """Update rule of a method on one stream; holds all state of the method."""

    @property
    def capturable(self) -> bool:
        """True if the rule is stateless and runs the same operations on every batch, so that it can be replayed."""
        return False

    @property
    def recordings(self) -> tuple[AbstractContextManager[object], ...]:
        """Reusable context managers around the forward pass and :meth:`update`, to record outputs of layers.

        Empty by default. With any, the model is not compiled during adaptation, as compiled code calls no recorder.
        """
        return ()

    @abstractmethod
    def update(self, batch: Batch) -> Update:
        """Return a loss to minimise, :class:`NewHead`, :class:`Skip`, :class:`Buffered`, or ``None`` for no update."""

    def state_dict(self) -> dict[str, object]:
        """Return the state of the rule as tensors and plain values; empty by default."""
        return {}

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError unless :meth:`state_dict` could have returned ``state``; by default it must be empty.

        Called before anything is loaded. Not called on a rule that overrides ``state_dict`` but not this method.
        """
        require_mapping(path, state, ())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most rules are stateless
        """Restore from :meth:`state_dict`; no-op by default."""


class RandomRule(Rule):
    """Abstract base of rules with random draws; their state is a generator on the CPU."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generator."""
        return {"generator": self.generator.get_state()}

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError unless ``state`` is a valid generator state."""
        value = require_mapping(path, state, ("generator",))["generator"]
        own = self.generator.get_state()
        require_tensor(f"{path}/generator", value, own.shape, own.dtype)
        try:
            torch.Generator().set_state(value.cpu())
        except RuntimeError as error:
            raise state_error(f"{path}/generator", "the state of a random generator", value) from error

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the generator from :meth:`state_dict`."""
        self.generator.set_state(state["generator"])
