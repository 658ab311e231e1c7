"""SSA: significant-subspace alignment.

Adachi, Yamaguchi, Kumagai and Hamagami, "Test-time Adaptation for Regression by Subspace Alignment",
ICLR 2025.

The source features of a regressor live in a small subspace. SSA projects the target's features onto
its leading directions and pulls their mean and variance to the source's, most of all where they move
the output.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from regtta.methods.alignment import Alignment, AlignmentMethod
from regtta.methods.base import Stage
from regtta.options import check_count


@dataclass(frozen=True, kw_only=True)
class SSA(AlignmentMethod):
    """Aligns the target's features with the source's in the subspace where the source's live.

    ``L = Σ_{d≤k} α_d · D(N(μ̃_d, σ̃²_d), N(0, λ_d))`` over the projected batch ``(z − μ) V``.

    Args:
        k: how many leading directions; ``"auto"`` takes the rank of the source features.
        weighting: ``α_d = 1 + ‖W v_d‖₂`` (the paper's ``1 + |wᵀv_d|`` for one output), else 1.
        metric: ``"kl"`` (both directions, the paper's), ``"w2"`` or ``"l1"``.
        unbiased: divide the batch's variance by B−1 (the paper's equations divide by B).
        clip: cut ``k`` to the rank; without it, directions of no variance make the loss diverge.

    Example:
        >>> SSA(k=25, metric="w2").k
        25
    """

    k: int | Literal["auto"] = 100

    name: ClassVar[str] = "ssa"
    paper: ClassVar[str] = "Adachi et al., ICLR 2025"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        if self.k != "auto":
            check_count("k", self.k)

    def alignment(self, stage: Stage) -> Alignment:
        """The leading directions; the source's mean is the origin there, its variances are λ."""
        subspace = stage.require_source().top(self.k, clip=self.clip)
        weight = stage.require_head().weight.detach().cpu().double()
        return Alignment(
            view=subspace.to(stage.device, stage.dtype).project,
            mean=torch.zeros_like(subspace.variances),
            variance=subspace.variances,
            effect=weight @ subspace.basis,
        )
