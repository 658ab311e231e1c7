"""Variance minimisation: consistent predictions over augmented views of an input.

After MEMO: Zhang, Levine and Finn, "MEMO: Test Time Robustness via Adaptation and Augmentation", NeurIPS 2022, in
the form that Adachi et al., ICLR 2025, compare with. Changed for regression: the variance of the output over
augmented views replaces the entropy of their mean prediction.

Choices where the paper gives no details: the loss is the mean over inputs of the variance over views; the whole
extractor is trained, and BatchNorm is in batch mode. The loss admits constant outputs as a trivial solution, to which
the method collapses in the paper's tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.rules import Batch, RandomRule, Rule
from regtta.models import Trainable, shift_and_jitter
from regtta.options import check_choice, check_non_negative_int, check_positive_int

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, kw_only=True)
class VarianceMinimization(GradientMethod):
    """Minimisation of the output variance over augmented views of each input.

    ``L = mean_i Var_v f(view_v(x_i))``, summed over outputs.

    Args:
        views: number of augmented views per input.
        augment: ``"images"`` translates images by up to an eighth of their side and jitters brightness and contrast by
            up to a fifth (without flips and rotations, which may change the label of a regression task), or a callable
            ``(inputs, generator) -> views`` that draws one view of each input.
        seed: of the augmentation.

    Example:
        >>> VarianceMinimization().views
        32
    """

    views: int = 32
    augment: Literal["images"] | Augmentation = "images"
    seed: int = 0
    trainable: Trainable = "extractor"

    name: ClassVar[str] = "variance_minimization"
    paper: ClassVar[str] = "after MEMO, Zhang et al., NeurIPS 2022"
    revision: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_positive_int("views", self.views)
        check_non_negative_int("seed", self.seed)
        if self.views < 2:
            raise OptionError("Expected views to be at least 2, found 1: one view has no variance.")
        if not callable(self.augment):
            check_choice("augment", self.augment, ("images",))

    def start(self, context: MethodContext) -> Rule:  # noqa: ARG002 - signature of the base class
        """Return the rule of a new stream."""
        augment = self.augment if callable(self.augment) else shift_and_jitter
        return _Views(augment, self.views, self.seed)


class _Views(RandomRule):
    def __init__(self, augment: Augmentation, views: int, seed: int) -> None:
        super().__init__(seed)
        self.augment = augment
        self.views = views

    def update(self, batch: Batch) -> Tensor:
        """Return the output variance over views, summed over outputs and averaged over inputs."""
        inputs = batch.require_one_input("variance_minimization")
        views = [self.augment(inputs, self.generator) for _ in range(self.views)]
        outputs = batch.forward(torch.cat(views)).outputs
        spread = outputs.reshape(self.views, len(inputs), outputs.shape[1:].numel()).var(dim=0).sum(dim=1)
        return batch.gather(spread).mean()
