"""Oracle: fine-tuning on target labels, the upper bound of test-time adaptation.

Adachi et al., "Test-time Adaptation for Regression by Subspace Alignment", ICLR 2025, compare with it without stating
which parameters are trained. Here: parameters, optimizer and schedule of SSA with the task loss on labels;
``trainable="all"`` is the second oracle in the tables of this project.
"""

import logging
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional

from regtta.errors import BatchError
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.rules import Batch, Rule
from regtta.options import check_choice

logger = logging.getLogger(__name__)

Task = Literal["regression", "classification"]


@dataclass(frozen=True, kw_only=True)
class Oracle(GradientMethod):
    """Supervised fine-tuning on target labels: an upper bound, not test-time adaptation.

    ``L = mean (f(x) − y)²`` for regression, the cross-entropy for classification.

    Args:
        task: ``"regression"`` or ``"classification"``.

    Example:
        >>> Oracle(trainable="all").takes_targets
        True
    """

    task: Task = "regression"

    name: ClassVar[str] = "oracle"
    paper: ClassVar[str] = "the upper bound in Adachi et al., ICLR 2025"
    takes_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_choice("task", self.task, ("regression", "classification"))

    def start(self, context: MethodContext) -> Rule:  # noqa: ARG002 - signature of the base class
        """Return the rule of a new stream, and log a warning that labels are used."""
        logger.warning(
            "The oracle learns from target labels: its scores are an upper bound, not a result of adaptation."
        )
        return _Supervised(self.task)


class _Supervised(Rule):
    def __init__(self, task: Task) -> None:
        self.task = task

    def update(self, batch: Batch) -> Tensor:
        """Return the task loss on the labels."""
        outputs, targets = batch.outputs, batch.require_targets().to(batch.outputs.device)
        if self.task == "classification":
            return _cross_entropy(outputs, targets)
        if targets.numel() != outputs.numel() or len(targets) != len(outputs):
            raise BatchError(
                f"Targets of shape {tuple(targets.shape)} do not fit outputs of shape {tuple(outputs.shape)}. "
                "Pass one row per sample and one column per output."
            )
        return functional.mse_loss(outputs, targets.reshape(outputs.shape).to(outputs.dtype))


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits ``(B, C)`` and class indices ``(B,)`` or probabilities ``(B, C)``."""
    numbers = not targets.is_floating_point()
    expected = outputs.shape[:1] + outputs.shape[2:] if numbers else outputs.shape
    try:
        if targets.shape == expected:
            return functional.cross_entropy(outputs, targets.long() if numbers else targets.to(outputs.dtype))
    except IndexError:  # class index out of range; reported below
        pass
    raise BatchError(
        f"Targets of shape {tuple(targets.shape)} and {targets.dtype} do not fit logits of shape "
        f"{tuple(outputs.shape)}, (B, C). Pass class indices (B,) as integers from 0 to C - 1, or probabilities (B, C)."
    )
