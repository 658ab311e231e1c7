"""Prototype: the head's weight as a single prototype, moved to the mean of the target's features.

After T3A: Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain
Generalization", NeurIPS 2021, in the form that Adachi et al., ICLR 2025, compare with. Changed for regression:
one prototype, no entropy filter, since a regressor has neither classes nor entropy.

Our reading, where the paper gives no formula: the weight becomes the mean of itself and of all target features
seen so far, scaled to the norm it had; the bias stays. Unscaled (``rescale=False``) it diverges on every data
set, as the paper's Biwi row does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from regtta.errors import ModelError
from regtta.methods.base import Batch, Method, MethodContext, NewHead, Rule, Schedule
from regtta.options import check_bool
from regtta.state_validation import require_count, require_mapping, require_tensor
from regtta.weight_assignment import check_assignable


@dataclass(frozen=True, kw_only=True)
class Prototype(Method):
    """Moves the head's weight to the running mean of the target's features.

    ``w ← ‖w₀‖ · m / ‖m‖``, ``m = (w₀ + Σ z_i) / (1 + n)`` over all n samples so far.

    Args:
        rescale: keep the norm that the weight was trained to; without it ``w ← m``.

    Example:
        >>> Prototype().rescale
        True
    """

    rescale: bool = True

    name: ClassVar[str] = "prototype"
    paper: ClassVar[str] = "after T3A, Iwasawa & Matsuo, NeurIPS 2021"
    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_bool("rescale", self.rescale)

    @property
    def schedule(self) -> Schedule:
        """Only the head moves, and by no gradient."""
        return Schedule()

    def start(self, context: MethodContext) -> Rule:
        """Begin with the trained weight as the only sample."""
        outputs = context.require_head().out_features
        if outputs > 1:
            raise ModelError(
                f"{type(context.model).__name__} has no single prototype: it gives {outputs} outputs, and all of "
                "them would be moved to the same weight. Take a method that fits, such as ssa."
            )
        check_assignable(context.require_head(), "weight")
        return _RunningMean(self, context)


class _RunningMean(Rule):
    def __init__(self, method: Prototype, context: MethodContext) -> None:
        weight = context.require_head().weight.detach().to(context.dtype)
        self.rescale = method.rescale
        self.norm = weight.norm()
        self.total = weight[0].clone()
        self.count = 1

    def update(self, batch: Batch) -> NewHead:
        """Add the batch to the mean."""
        self.total = self.total + batch.features.detach().to(self.total.dtype).sum(dim=0)
        self.count += len(batch.features)
        mean = self.total / self.count
        weight = mean * (self.norm / mean.norm()) if self.rescale else mean
        return NewHead(weight.unsqueeze(0))

    def state_dict(self) -> dict[str, Any]:
        """The sum so far."""
        return {"total": self.total.clone(), "count": self.count}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` is a sum of features and their count."""
        found = require_mapping(path, state, ("total", "count"))
        require_tensor(f"{path}/total", found["total"], self.total.shape, self.total.dtype)
        require_count(f"{path}/count", found["count"], least=1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a sum."""
        self.total = state["total"].to(self.total)
        self.count = state["count"]
