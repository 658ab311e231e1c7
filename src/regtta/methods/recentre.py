"""Recentre: features moved to the source mean, folded into the head's bias.

After NEO, "No-Optimization Test-Time Adaptation through Latent Re-centering", ICLR 2026, where the features of a
classifier are recentred. It applies to regression unchanged, since it uses neither labels nor outputs.

The target mean is that of all samples seen so far. The features themselves are those of the source model: a step moves
the bias of the head alone, at the cost of one forward pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from regtta.methods.base import Method, MethodContext, Schedule
from regtta.methods.rules import Batch, NewHead, Rule
from regtta.persistence import require_count, require_mapping, require_tensor
from regtta.statistics import moments_device


@dataclass(frozen=True, kw_only=True)
class Recentre(Method):
    """Recentring of the target features on the source mean.

    ``z ← z − μ_t + μ_s`` with the running target mean μ_t, folded into the head: ``b ← b₀ + W (μ_s − μ_t)``.

    Example:
        >>> import torch, regtta
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        >>> adapter = regtta.Adapter(net, Recentre(), regtta.collect(net, [torch.randn(100, 3)]))
        >>> adapter.adapt(torch.randn(20, 3) + 1).adapted
        True
    """

    name: ClassVar[str] = "recentre"
    paper: ClassVar[str] = "after NEO, ICLR 2026"
    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True
    replaces_head: ClassVar[bool] = True

    @property
    def schedule(self) -> Schedule:
        """Schedule without an optimizer: the rule replaces the bias of the head."""
        return Schedule()

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, or raise ModelError if the head has no bias that can be set."""
        context.require_bias(self.name)
        return _RunningMean(context)


class _RunningMean(Rule):
    def __init__(self, context: MethodContext) -> None:
        head = context.require_head()
        device = moments_device(context.device)
        self.weight, self.bias = (
            values.detach().to(device, torch.float64, copy=True) for values in (head.weight, head.bias)
        )
        self.source_mean = context.require_source().mean.to(self.weight)
        self.mean = torch.zeros_like(self.source_mean)
        self.count = 0

    def update(self, batch: Batch) -> NewHead:
        """Add the batch to the target mean and return the new bias."""
        features = batch.features.detach().to(self.mean)
        self.count += len(features)
        self.mean = self.mean + (features - self.mean).sum(dim=0) / self.count
        return NewHead(None, self.bias + self.weight @ (self.source_mean - self.mean))

    def state_dict(self) -> dict[str, Any]:
        """Return the target mean and its number of samples."""
        return {"mean": self.mean.clone(), "count": self.count}

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError unless ``state`` is a mean of features and their count."""
        found = require_mapping(path, state, ("mean", "count"))
        require_tensor(f"{path}/mean", found["mean"], self.mean.shape, self.mean.dtype)
        require_count(f"{path}/count", found["count"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the mean from :meth:`state_dict`."""
        self.mean = state["mean"].to(self.mean)
        self.count = state["count"]
