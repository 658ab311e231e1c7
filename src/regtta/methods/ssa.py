"""SSA: significant-subspace alignment.

Adachi, Yamaguchi, Kumagai and Hamagami, "Test-time Adaptation for Regression by Subspace Alignment",
ICLR 2025.

The source features of a regressor concentrate in a low-dimensional subspace. SSA projects the target features onto
its leading directions and aligns their mean and variance with the source, weighted by the effect of each direction on
the output.
"""

import logging
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.methods.alignment import Alignment, AlignmentMethod, projection
from regtta.methods.base import MethodContext
from regtta.options import DefaultInt, check_bool, check_positive_int
from regtta.statistics import SourceStatistics, Subspace, describe_few_samples

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SSA(AlignmentMethod):
    """Alignment of the target features with the source in the principal subspace of the source features.

    ``L = Σ_{d≤k} α_d · D(N(μ̃_d, σ̃²_d), N(0, λ_d))`` with the moments of the projected batch ``(z − μ) V``.

    Args:
        k: number of leading directions; ``"auto"`` uses the rank of the source features, and the default of 100
            at most the rank.
        weighting: ``α_d = 1 + ‖W v_d‖₂`` (the paper's ``1 + |wᵀv_d|`` for one output), else 1.
        metric: ``"kl"`` (both directions, the paper's), ``"w2"`` or ``"l1"``.
        unbiased: divide the batch's variance by B−1 (the paper's equations divide by B).
        clip: limit ``k`` to the rank, as directions of zero variance would make the loss diverge.
        window: number of most recent samples to estimate the moments from; 0 uses the batch alone.
        free_output: align only directions that are uncorrelated with the output on the source, for targets whose label
            distribution may have shifted. Combine with ``batch_norm="source"``, since normalisation by the batch would
            change the output distribution nevertheless.

    Example:
        >>> SSA(k=25, metric="w2").k
        25
    """

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

    def subspace(self, source: SourceStatistics) -> Subspace:
        """Return the k leading directions; a ``k`` above the rank is reduced, with a warning unless it is the default.

        Example:
            >>> import regtta
            >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 1))
            >>> SSA(k=2).subspace(regtta.collect(net, [torch.randn(50, 3)])).basis.shape
            torch.Size([8, 2])
        """
        k = min(self.k, source.rank) if self.clip and isinstance(self.k, DefaultInt) else self.k
        return source.top(k, clip=self.clip)

    def alignment(self, context: MethodContext) -> Alignment:
        """Return the leading directions, in which the source has mean 0 and variances λ."""
        subspace = self.subspace(context.require_source())
        few = describe_few_samples(context.require_source(), len(subspace.variances))
        if few:
            logger.warning("%s", few)
        weight = context.require_head().weight.detach().cpu().double()
        if self.free_output:
            return _around_output(subspace, weight, context)
        return Alignment(
            view=projection(subspace.to(context.device, context.dtype)),
            mean=torch.zeros_like(subspace.variances),
            variance=subspace.variances,
            effect=weight @ subspace.basis,
        )


def _around_output(subspace: Subspace, weight: Tensor, context: MethodContext) -> Alignment:
    """Return the whitened directions that are uncorrelated with the outputs on the source; their variance is 1."""
    scale = subspace.variances.sqrt()
    _, sizes, directions = torch.linalg.svd(weight @ subspace.basis * scale, full_matrices=True)
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
        effect=torch.zeros(len(weight), free.shape[1], dtype=torch.float64),
    )
