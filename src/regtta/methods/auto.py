"""Auto: alignment that decides from the stream whether, how far and how long to adapt.

The recommended method. What it decides, and by what:

* **Whether to adapt.** The adapter adds the guard :class:`regtta.guards.RepairableShift`: without a shift of the
  features, and where the inputs come from another population, the source model stays in use.
* **Whose BatchNorm statistics.** The source's as long as the guard rejects; then those of the target alone, averaged
  over about 50 batches, so that neither the source nor the noise of single batches is left in them.
* **How many directions.** All leading directions that are not numerically null, at most ``k``.
* **How long.** Gradient steps stop when the loss has not decreased for ``patience`` batches, and are resumed when it
  has risen by half. BatchNorm's statistics follow the stream throughout.

The rules were chosen on the development half of ``regtta reproduce shifts``; docs/auto.md has the results.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from regtta.methods.alignment import (
    Alignment,
    AlignmentMethod,
    AlignmentRule,
    leading_directions,
    subspace_alignment,
)
from regtta.methods.base import MethodContext
from regtta.methods.rules import Batch, Buffered, Rule
from regtta.models import BatchNormMode
from regtta.options import DefaultInt, check_positive_int
from regtta.persistence import require_count, require_mapping, require_number
from regtta.statistics import Clip

MEMORY = 32  # batches that the average loss extends over
DECREASE, RISE = 0.01, 0.5  # relative changes of the average loss that count as progress, and as a new shift


@dataclass(frozen=True, kw_only=True)
class Auto(AlignmentMethod):
    """Alignment with the source that decides by itself whether, how far and how long to adapt.

    ``L = Σ_{d≤k} α_d · D(N(μ̃_d, σ̃²_d), N(0, λ_d))`` as in :class:`SSA`, on batches that the guard
    :class:`regtta.guards.RepairableShift` accepts; the adapter adds the guard.

    Args:
        k: largest number of leading directions; ``"auto"`` uses the rank of the source features.
        clip: directions that are left out: numerically null ones (``"null"``), all beyond the rank (True), or none.
        weighting: ``α_d = 1 + ‖W v_d‖₂``, else 1.
        metric: ``"kl"`` (both directions), ``"w2"`` or ``"l1"``.
        unbiased: divide the batch's variance by B−1 instead of B.
        window: number of most recent samples to estimate the moments from; 0 uses the batch alone.
        patience: number of batches without a decrease of the loss after which gradient steps stop.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(
        ...     torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        ... )
        >>> x = torch.randn(500, 4)
        >>> _ = model.train()(x)
        >>> adapter = regtta.Adapter(model.eval(), "auto", regtta.collect(model, [x]))
        >>> adapter.adapt(x[:64]).reason
        'no shift'
        >>> adapter.adapt(x[:64] * torch.tensor([3.0, 1.0, 1.0, 1.0]) + torch.tensor([9.0, 0.0, 0.0, 0.0])).adapted
        True
    """

    k: int | Literal["auto"] = DefaultInt(100)
    clip: Clip = "null"
    batch_norm: BatchNormMode = "debiased"
    bn_momentum: float | None = 0.02
    patience: int = 100

    name: ClassVar[str] = "auto"
    paper: ClassVar[str] = "after Adachi et al., ICLR 2025; the rules are regtta's"
    selective: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        if self.k != "auto":
            check_positive_int("k", self.k)
        check_positive_int("patience", self.patience)

    def alignment(self, context: MethodContext) -> Alignment:
        """Return the leading directions, in which the source has mean 0 and variances λ."""
        return subspace_alignment(leading_directions(context.require_source(), self.k, self.clip), context)

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream."""
        return _StoppingRule(self, context)


class _StoppingRule(AlignmentRule):
    """Alignment loss as long as it decreases."""

    def __init__(self, method: Auto, context: MethodContext) -> None:
        super().__init__(method, context)
        self.patience = method.patience
        self.average, self.best = 0.0, math.inf
        self.batches = self.stale = 0

    @property
    def capturable(self) -> bool:
        """False: whether a step is taken depends on previous ones."""
        return False

    def update(self, batch: Batch) -> Tensor | Buffered | None:
        """Return the alignment loss, or None once it has stopped decreasing."""
        loss = super().update(batch)
        if isinstance(loss, Tensor) and not batch.repeated:
            self._follow(float(loss.detach()))
        return None if isinstance(loss, Tensor) and self.stale >= self.patience else loss

    def _follow(self, loss: float) -> None:
        if not math.isfinite(loss):
            return
        self.batches += 1
        self.average += (loss - self.average) / min(self.batches, MEMORY)
        self.stale += 1
        if self.average < self.best * (1 - DECREASE) or self.average > self.best * (1 + RISE):
            self.best, self.stale = self.average, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the window and the course of the loss."""
        best = None if math.isinf(self.best) else self.best
        return {
            **super().state_dict(),
            "average": self.average,
            "best": best,
            "batches": self.batches,
            "stale": self.stale,
        }

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError unless ``state`` has the form that :meth:`state_dict` returns."""
        own = ("average", "best", "batches", "stale")
        found = dict(require_mapping(path, state, (*super().state_dict(), *own)))
        super().validate_state({name: value for name, value in found.items() if name not in own}, path)
        require_number(f"{path}/average", found["average"])
        if found["best"] is not None:
            require_number(f"{path}/best", found["best"])
        require_count(f"{path}/stale", found["stale"], maximum=require_count(f"{path}/batches", found["batches"]))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        super().load_state_dict(state)
        self.average, self.batches, self.stale = state["average"], state["batches"], state["stale"]
        self.best = math.inf if state["best"] is None else state["best"]
