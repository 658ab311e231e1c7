"""SSA: significant-subspace alignment.

Adachi, Yamaguchi, Kumagai and Hamagami, "Test-time Adaptation for Regression by Subspace Alignment",
ICLR 2025.

The source features of a regressor concentrate in a low-dimensional subspace. SSA projects the target features onto
its leading directions and aligns their mean and variance with the source, weighted by the effect of each direction on
the output.

The defaults differ from the paper's settings, which are those of :meth:`SSA.from_paper`: the running statistics of
BatchNorm are estimated from the target alone, over about 50 batches, and numerically null directions are not aligned.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.methods.alignment import Alignment, AlignmentMethod, leading_directions, projection, subspace_alignment
from regtta.methods.base import MethodContext
from regtta.models import BatchNormMode
from regtta.options import DefaultInt, added_later, check_bool, check_positive_int
from regtta.statistics import Clip, SourceStatistics, Subspace


@dataclass(frozen=True, kw_only=True)
class SSA(AlignmentMethod):
    """Alignment of the target features with the source in the principal subspace of the source features.

    ``L = Σ_{d≤k} α_d · D(N(μ̃_d, σ̃²_d), N(0, λ_d))`` with the moments of the projected batch ``(z − μ) V``.

    Args:
        k: number of leading directions; ``"auto"`` uses the rank of the source features, and the default of 100
            at most as many as ``clip`` admits.
        weighting: ``α_d = 1 + ‖W v_d‖₂`` (the paper's ``1 + |wᵀv_d|`` for one output), else 1.
        metric: ``"kl"`` (both directions, the paper's), ``"w2"`` or ``"l1"``.
        unbiased: divide the batch's variance by B−1 (the paper's equations divide by B).
        clip: limit of ``k``, as directions of zero variance would make the loss diverge: ``"null"`` excludes only
            numerically null directions, ``True`` all beyond the rank, ``False`` none.
        batch_norm: as in all methods with a loss, by default ``"debiased"``.
        bn_momentum: momentum of BatchNorm's running statistics; pass ``None`` for each layer's own.
        window: number of most recent samples to estimate the moments from; 0 uses the batch alone.
        free_output: align only directions that are uncorrelated with the output on the source, for targets whose label
            distribution may have shifted. Combine with ``batch_norm="source"``, since normalisation by the batch would
            change the output distribution nevertheless.

    Example:
        >>> SSA(k=25, metric="w2").k
        25
    """

    batch_norm: BatchNormMode = "debiased"
    bn_momentum: float | None = added_later(0.02, earlier=None)
    clip: Clip = "null"
    k: int | Literal["auto"] = DefaultInt(100)
    free_output: bool = False

    name: ClassVar[str] = "ssa"
    paper: ClassVar[str] = "Adachi et al., ICLR 2025"

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        if self.k != "auto":
            check_positive_int("k", self.k)
        check_bool("free_output", self.free_output)

    @classmethod
    def from_paper(cls, **options: Any) -> "SSA":
        """Return SSA with the settings of the paper, and with ``options`` instead of these.

        BatchNorm updates the running statistics of the source with each layer's own momentum, and the 100 leading
        directions are aligned, null or not; all directions of features with fewer.

        Example:
            >>> method = SSA.from_paper(k=25)
            >>> method.k, method.clip, method.batch_norm, method.bn_momentum, method.lr
            (25, False, 'batch', None, 0.001)
        """
        settings: dict[str, Any] = {"k": DefaultInt(100), "lr": 1e-3, "clip": False}
        settings |= {"batch_norm": "batch", "bn_momentum": None}
        return cls(**settings | options)

    def subspace(self, source: SourceStatistics) -> Subspace:
        """Return the k leading directions; a ``k`` beyond ``clip`` is reduced, with a warning unless it is the default.

        Example:
            >>> import regtta
            >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 1))
            >>> SSA(k=2).subspace(regtta.collect(net, [torch.randn(50, 3)])).basis.shape
            torch.Size([8, 2])
        """
        return leading_directions(source, self.k, self.clip)

    def alignment(self, context: MethodContext) -> Alignment:
        """Return the leading directions, in which the source has mean 0 and variances λ."""
        subspace = self.subspace(context.require_source())
        alignment = subspace_alignment(subspace, context)
        return _around_output(subspace, alignment.effect, context) if self.free_output else alignment


def _around_output(subspace: Subspace, effect: Tensor, context: MethodContext) -> Alignment:
    """Return the whitened directions that are uncorrelated with the outputs on the source; their variance is 1."""
    scale = subspace.variances.sqrt()
    _, sizes, directions = torch.linalg.svd(effect * scale, full_matrices=True)
    rank = int((sizes > sizes.max() * 1e-9).sum())
    free = directions[rank:].T
    if free.shape[1] == 0:
        raise OptionError(
            f"Expected more directions than the {rank} along which the outputs vary, which free_output excludes, found "
            f"k={len(scale)}. Pass a larger k."
        )
    at_device = Subspace(subspace.mean, torch.ones(free.shape[1]), subspace.basis / scale @ free)
    return Alignment(
        view=projection(at_device.to(context.device, context.dtype)),
        mean=torch.zeros(free.shape[1], dtype=torch.float64),
        variance=torch.ones(free.shape[1], dtype=torch.float64),
        effect=torch.zeros(len(effect), free.shape[1], dtype=torch.float64),
    )
