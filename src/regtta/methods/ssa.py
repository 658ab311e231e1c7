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
from torch import Tensor

from regtta.errors import OptionError
from regtta.methods.alignment import Alignment, AlignmentMethod
from regtta.methods.base import MethodContext
from regtta.options import check_bool, check_count
from regtta.statistics import Subspace


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
        window: align the moments of the last so many samples rather than those of the batch alone; 0 for none.
        free_output: leave the directions along which the output moves as they are, and align those that are
            uncorrelated with it on the source: for targets whose labels may have moved. BatchNorm by the batch would
            move the output all the same; take ``batch_norm="source"`` with it.

    Example:
        >>> SSA(k=25, metric="w2").k
        25
    """

    k: int | Literal["auto"] = 100
    free_output: bool = False

    name: ClassVar[str] = "ssa"
    paper: ClassVar[str] = "Adachi et al., ICLR 2025"

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        if self.k != "auto":
            check_count("k", self.k)
        check_bool("free_output", self.free_output)

    def alignment(self, context: MethodContext) -> Alignment:
        """The leading directions; the source's mean is the origin there, its variances are λ."""
        subspace = context.require_source().top(self.k, clip=self.clip)
        weight = context.require_head().weight.detach().cpu().double()
        if self.free_output:
            return _around_output(subspace, weight, context)
        return Alignment(
            view=subspace.to(context.device, context.dtype).project,
            mean=torch.zeros_like(subspace.variances),
            variance=subspace.variances,
            effect=weight @ subspace.basis,
        )


def _around_output(subspace: Subspace, weight: Tensor, context: MethodContext) -> Alignment:
    """The whitened directions orthogonal to the outputs' own: uncorrelated with them on the source, of variance 1."""
    scale = subspace.variances.sqrt()
    _, sizes, directions = torch.linalg.svd(weight @ subspace.basis * scale, full_matrices=True)
    rank = int((sizes > sizes.max() * 1e-9).sum())
    free = directions[rank:].T
    if free.shape[1] == 0:
        raise OptionError(
            f"k={len(scale)} directions are no more than the outputs move along, and free_output leaves those out. "
            "Pass a larger k."
        )
    at_device = Subspace(subspace.mean, torch.ones(free.shape[1]), subspace.basis / scale @ free)
    return Alignment(
        view=at_device.to(context.device, context.dtype).project,
        mean=torch.zeros(free.shape[1], dtype=torch.float64),
        variance=torch.ones(free.shape[1], dtype=torch.float64),
        effect=torch.zeros(len(weight), free.shape[1], dtype=torch.float64),
    )
