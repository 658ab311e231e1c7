"""Recolour: features mapped linearly to the mean and covariance of the source, folded into the head.

After LinearTCA, "Test-time Correlation Alignment", ICML 2025, where the features of a classifier are mapped. It applies
to regression unchanged, since it uses neither labels nor outputs.

Choices: the target covariance is that of all samples seen so far, shrunken towards the source covariance with the
weight of ``prior_samples`` samples, since a covariance of few samples is singular; without any samples the map is the
identity. Directions in which the source does not vary (beyond the rank of its features) are recentred and not scaled:
the map to a variance of 0 would remove them. All arithmetic is in float64. A step takes one eigenvalue decomposition of
the target covariance, of order D³.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regtta.methods.base import Method, MethodContext, Schedule
from regtta.methods.rules import Batch, NewHead, Rule
from regtta.models import check_assignable
from regtta.options import check_positive_int
from regtta.persistence import require_count, require_mapping, require_tensor
from regtta.statistics import Moments, moments_device, stable_eigh


@dataclass(frozen=True, kw_only=True)
class Recolour(Method):
    """Linear map of the target features to the mean and covariance of the source.

    ``z ← μ_s + A (z − μ_t)`` with ``A = Σ_s^½ Σ̂_t^(−½)``, folded into the head: ``W ← W₀ A`` and
    ``b ← b₀ + W₀ (μ_s − A μ_t)``. ``Σ̂_t = (n₀ Σ_s + n Σ_t) / (n₀ + n)`` after n samples. In the basis V of the source,
    where its variances are Λ, the same map is ``A = V Λ^½ (Vᵀ Σ̂_t V)^(−½) Vᵀ``; this is how it is computed.

    Args:
        prior_samples: number of samples n₀ that the source covariance counts as in the target's.

    Example:
        >>> import torch, regtta
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        >>> adapter = regtta.Adapter(net, Recolour(), regtta.collect(net, [torch.randn(100, 3)]))
        >>> adapter.adapt(torch.randn(20, 3) + 1).adapted
        True
    """

    prior_samples: int = 256

    name: ClassVar[str] = "recolour"
    paper: ClassVar[str] = "after LinearTCA, ICML 2025"
    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True
    replaces_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive_int("prior_samples", self.prior_samples)

    @property
    def schedule(self) -> Schedule:
        """Schedule without an optimizer: the rule replaces the head."""
        return Schedule()

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, or raise ModelError if the head cannot be replaced or has no bias."""
        context.require_bias(self.name)
        check_assignable(context.require_head(), "weight")
        return _LinearMap(self, context)


class _LinearMap(Rule):
    def __init__(self, method: Recolour, context: MethodContext) -> None:
        source, head = context.require_source(), context.require_head()
        source.require_variance()
        self.prior = method.prior_samples
        device = moments_device(context.device)
        self.weight, self.bias = (
            values.detach().to(device, torch.float64, copy=True) for values in (head.weight, head.bias)
        )
        self.source_mean = source.mean.to(self.weight)
        self.variances = source.variances[: source.rank].to(self.weight)
        self.basis = source.basis[:, : source.rank].to(self.weight)
        self.target = Moments(0, torch.zeros_like(self.source_mean), self.weight.new_zeros(2 * (source.dimensions,)))

    def update(self, batch: Batch) -> NewHead:
        """Add the batch to the target moments and return the new head."""
        new = Moments.from_features(batch.features.detach())
        self.target = self.target.merge(new) if self.target.count else new
        # W A = W + (W V) (Λ^½ M^(−½) − I) Vᵀ, which leaves the directions outside V as they are.
        inside = self.weight @ self.basis
        weight = self.weight + (inside @ self._map() - inside) @ self.basis.T
        return NewHead(weight, self.bias + self.weight @ self.source_mean - weight @ self.target.mean)

    def _map(self) -> Tensor:
        """Return ``Λ^½ M^(−½)`` with the shrunken target covariance M in the basis of the source, ``(r, r)``."""
        count, scatter = self.target.count, self.basis.T @ self.target.scatter @ self.basis
        matrix = torch.diag(self.variances * self.prior) + scatter * (count / max(1, count - 1))
        values, vectors = stable_eigh((matrix + matrix.T) / (2 * (self.prior + count)))
        # M is at least its part from the source; rounding may find less.
        least = self.variances.min() * (self.prior / (self.prior + count))
        values, vectors = values.to(self.weight).clamp_min(least), vectors.to(self.weight)
        return self.variances.sqrt().unsqueeze(1) * ((vectors * values.rsqrt()) @ vectors.T)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments of the target features."""
        return {"count": self.target.count, "mean": self.target.mean.clone(), "scatter": self.target.scatter.clone()}

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError unless ``state`` holds moments of features."""
        found = require_mapping(path, state, ("count", "mean", "scatter"))
        require_count(f"{path}/count", found["count"])
        for name, own in (("mean", self.target.mean), ("scatter", self.target.scatter)):
            require_tensor(f"{path}/{name}", found[name], own.shape, own.dtype)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the moments from :meth:`state_dict`."""
        self.target = Moments(state["count"], state["mean"].to(self.weight), state["scatter"].to(self.weight))
