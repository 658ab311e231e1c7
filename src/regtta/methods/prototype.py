"""Prototype: the head's weight as a single prototype, updated to the mean of the target features.

After T3A: Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain
Generalization", NeurIPS 2021, in the form that Adachi et al., ICLR 2025, compare with. Changed for regression:
one prototype and no entropy filter, since a regressor has neither classes nor entropy.

Choice where the paper gives no formula: the weight becomes the mean of itself and all target features seen so far,
rescaled to its original norm; the bias is unchanged. Without rescaling (``rescale=False``) the method diverges on every
data set, as it does on Biwi in the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from regtta.errors import ModelError
from regtta.methods.base import Method, MethodContext, Schedule
from regtta.methods.rules import Batch, NewHead, Rule
from regtta.models import check_assignable
from regtta.options import check_bool
from regtta.persistence import require_count, require_mapping, require_tensor


@dataclass(frozen=True, kw_only=True)
class Prototype(Method):
    """Replacement of the head's weight by the running mean of the target features.

    ``w ← ‖w₀‖ · m / ‖m‖``, ``m = (w₀ + Σ z_i) / (1 + n)`` over all n samples seen so far.

    Args:
        rescale: keep the norm of the trained weight; otherwise ``w ← m``.

    Example:
        >>> Prototype().rescale
        True
    """

    rescale: bool = True

    name: ClassVar[str] = "prototype"
    paper: ClassVar[str] = "after T3A, Iwasawa & Matsuo, NeurIPS 2021"
    needs_head: ClassVar[bool] = True
    replaces_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_bool("rescale", self.rescale)

    @property
    def schedule(self) -> Schedule:
        """Schedule without an optimizer: the rule replaces the head."""
        return Schedule()

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, with the trained weight as the first sample of the mean."""
        outputs = context.require_head().out_features
        if outputs > 1:
            raise ModelError(
                f"{type(context.model).__name__} has no single prototype: it gives {outputs} outputs, which would all "
                "get the same weight. Use another method, such as ssa."
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
        """Add the batch to the mean and return the new head."""
        self.total = self.total + batch.features.detach().to(self.total.dtype).sum(dim=0)
        self.count += len(batch.features)
        mean = self.total / self.count
        weight = mean * (self.norm / mean.norm()) if self.rescale else mean
        return NewHead(weight.unsqueeze(0))

    def state_dict(self) -> dict[str, Any]:
        """Return the sum of the features and their count."""
        return {"total": self.total.clone(), "count": self.count}

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError unless ``state`` is a sum of features and their count."""
        found = require_mapping(path, state, ("total", "count"))
        require_tensor(f"{path}/total", found["total"], self.total.shape, self.total.dtype)
        require_count(f"{path}/count", found["count"], minimum=1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the sum from :meth:`state_dict`."""
        self.total = state["total"].to(self.total)
        self.count = state["count"]
