"""Recalibrate once: BatchNorm statistics of the first target samples, then a frozen model.

The baseline that is usually tried first in practice. The statistics are those of Benz et al., "Revisiting Batch
Normalization for Improving Corruption Robustness", WACV 2021, estimated once instead of continuously.

Batches are used as a whole until ``samples`` samples have been seen: the last of them may exceed it. Each of these
batches is normalised by its own statistics, and the running statistics are the means over batches, weighted by their
sizes, without any contribution of the source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from regtta.errors import ModelError
from regtta.methods.base import Method, MethodContext, Schedule
from regtta.methods.rules import Batch, Rule, Skip
from regtta.models import batch_norm_layers
from regtta.options import check_positive_int
from regtta.persistence import require_count, require_mapping


@dataclass(frozen=True, kw_only=True)
class RecalibrateOnce(Method):
    """BatchNorm statistics of the first samples of the target; nothing is adapted after them.

    ``μ = Σ_b n_b μ_b / n`` and ``σ² = Σ_b n_b σ²_b / n`` over the first batches b of n_b samples, until their total n
    is at least ``samples``.

    Args:
        samples: number of target samples to estimate the statistics from.

    Example:
        >>> import torch, regtta
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).eval()
        >>> adapter = regtta.Adapter(net, RecalibrateOnce(samples=60))
        >>> [step.adapted for step in adapter.run(torch.randn(160, 3).split(40))]
        [True, True, False, False]
    """

    samples: int = 512

    name: ClassVar[str] = "recalibrate_once"
    paper: ClassVar[str] = "a baseline; statistics of Benz et al., WACV 2021"

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive_int("samples", self.samples)

    @property
    def schedule(self) -> Schedule:
        """Schedule that updates running statistics and no parameters."""
        return Schedule(batch_norm="cumulative")

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, or raise ModelError if there are no running statistics."""
        if not any(layer.track_running_stats for layer in batch_norm_layers(context.model)):
            raise ModelError(
                f"{type(context.model).__name__} has no BatchNorm layer with running statistics, which are all that "
                "recalibrate_once updates. Use another method, such as ssa."
            )
        return _FirstSamples(self.samples)


class _FirstSamples(Rule):
    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.seen = 0

    def update(self, batch: Batch) -> Skip | None:
        """Keep the running statistics, which the forward pass has updated; skip all batches after the first samples."""
        if self.seen >= self.samples:
            return Skip(f"recalibrated on the first {self.seen} samples and frozen since")
        self.seen += len(batch.features)
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return the number of samples seen."""
        return {"seen": self.seen}

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError unless ``state`` is a number of samples."""
        require_count(f"{path}/seen", require_mapping(path, state, ("seen",))["seen"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the number of samples from :meth:`state_dict`."""
        self.seen = state["seen"]
