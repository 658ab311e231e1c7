"""Whitened coordinates of the features, in which shifts are measured in source standard deviations.

On the source, whitened coordinates have mean 0 and variance 1 and are uncorrelated. Sizes of shifts are therefore
comparable across directions and models. Moreover, a reweighting of the source, such as a label shift, cannot move the
mean further than its χ² divergence: coordinates that are orthonormal in L²(source) satisfy Bessel's inequality,
``‖E_target[y]‖² ≤ χ²(target ‖ source)``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regtta.statistics.source import EXPLAINED_VARIANCE, SourceStatistics


@dataclass(frozen=True)
class Whitening:
    """Whitening transform ``y = Λ^(−1/2) Vᵀ (z − μ)`` of features.

    Attributes:
        mean: (D,) source mean μ.
        map: (D, k) matrix ``V Λ^(−1/2)``.
        outputs: (k, O) orthonormal directions along which the head's outputs vary. On the source, the
            coordinates orthogonal to them are uncorrelated with every output.
    """

    mean: Tensor
    map: Tensor
    outputs: Tensor

    @classmethod
    def from_statistics(
        cls, source: SourceStatistics, head: nn.Linear, fraction: float = EXPLAINED_VARIANCE
    ) -> "Whitening":
        """Return the whitening of the leading directions that carry ``fraction`` of the variance, on the head's device.

        Example:
            >>> import regtta
            >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
            >>> x = torch.randn(500, 3)
            >>> whitening = Whitening.from_statistics(regtta.collect(net, [x]), net[2])
            >>> bool((whitening(net[:2](x)).var(dim=0) - 1).abs().max() < 1e-3)
            True
        """
        source.require_variance()
        subspace = source.leading_subspace(fraction)
        scale = subspace.variances.sqrt()
        effect = head.weight.detach().cpu().double() @ subspace.basis * scale
        device, dtype = head.weight.device, torch.promote_types(head.weight.dtype, torch.float32)
        return cls(
            source.mean.to(device, dtype),
            (subspace.basis / scale).to(device, dtype),
            _orthonormal(effect.T).to(device, dtype),
        )

    def to(self, device: torch.device) -> "Whitening":
        """Return the same whitening on another device."""
        return Whitening(self.mean.to(device), self.map.to(device), self.outputs.to(device))

    @property
    def dimensions(self) -> int:
        """Number of whitened coordinates k."""
        return self.map.shape[1]

    def __call__(self, features: Tensor) -> Tensor:
        """Return the whitened coordinates (B, k) of features (B, D)."""
        return (features.detach().to(self.map.dtype) - self.mean) @ self.map


def _orthonormal(columns: Tensor) -> Tensor:
    """Return an orthonormal basis of the span of ``columns`` (k, O), of as many columns as their rank."""
    vectors, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
    kept: Tensor = vectors[:, sizes > sizes.max().clamp_min(1e-300) * 1e-9]
    return kept
