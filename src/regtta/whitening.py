"""The source's subspace with unit variances: where shifts are measured in source standard deviations.

A whitened coordinate has mean 0 and variance 1 on the source, and no two are correlated there. Two things
follow. Sizes of shifts compare across directions and models. And no reweighting of the source, a change in the
mix of labels among them, can move the mean further than its own χ² divergence: coordinates that are orthonormal
in L²(source) obey Bessel's inequality, ``‖E_target[y]‖² ≤ χ²(target ‖ source)``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regtta.statistics import SHARE, SourceStatistics


@dataclass(frozen=True)
class Whitening:
    """Coordinates ``y = Λ^(−1/2) Vᵀ (z − μ)`` of features.

    Attributes:
        mean: (D,) the source's.
        map: (D, k).
        outputs: (k, O) orthonormal: the directions along which the head's outputs move. On the source, the
            coordinates orthogonal to them are uncorrelated with every output.
    """

    mean: Tensor
    map: Tensor
    outputs: Tensor

    @classmethod
    def of(cls, source: SourceStatistics, head: nn.Linear, share: float = SHARE) -> "Whitening":
        """The leading directions that carry ``share`` of the source's variance, on the head's device.

        Example:
            >>> import regtta
            >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
            >>> x = torch.randn(500, 3)
            >>> whitening = Whitening.of(regtta.collect(net, [x]), net[2])
            >>> bool((whitening(net[:2](x)).var(dim=0) - 1).abs().max() < 1e-3)
            True
        """
        source.require_variance()
        subspace = source.leading(share)
        scale = subspace.variances.sqrt()
        effect = head.weight.detach().cpu().double() @ subspace.basis * scale
        device, dtype = head.weight.device, torch.promote_types(head.weight.dtype, torch.float32)
        return cls(
            source.mean.to(device, dtype),
            (subspace.basis / scale).to(device, dtype),
            _orthonormal(effect.T).to(device, dtype),
        )

    @property
    def dimensions(self) -> int:
        """K."""
        return self.map.shape[1]

    def __call__(self, features: Tensor) -> Tensor:
        """Coordinates (B, k) of features (B, D)."""
        return (features.detach().to(self.map.dtype) - self.mean) @ self.map


def _orthonormal(columns: Tensor) -> Tensor:
    """An orthonormal basis (k, O) of the span of ``columns`` (k, O); directions that are none are left out."""
    vectors, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
    kept: Tensor = vectors[:, sizes > sizes.max().clamp_min(1e-300) * 1e-9]
    return kept
