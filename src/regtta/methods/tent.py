"""Tent: entropy minimisation, for classification heads.

Wang, Shelhamer, Liu, Olshausen and Darrell, "Tent: Fully Test-time Adaptation by Entropy Minimization",
ICLR 2021. The output of a regressor has no entropy, so Tent applies to classifiers only, alone or summed with SSA
(``regtta.create_method("tent+ssa")``) as in the classification tables of Adachi et al., ICLR 2025.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from regtta.errors import ModelError
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.losses import entropy
from regtta.methods.rules import Batch, Rule


@dataclass(frozen=True, kw_only=True)
class Tent(GradientMethod):
    """Minimisation of the entropy of a classifier's predictions.

    ``L = mean_i H(softmax(f(x_i)))``

    Example:
        >>> Tent().trainable
        'affine'
    """

    name: ClassVar[str] = "tent"
    paper: ClassVar[str] = "Wang et al., ICLR 2021"
    needs_head: ClassVar[bool] = True

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, or raise ModelError if the head has fewer than two outputs."""
        outputs = context.require_head().out_features
        if outputs < 2:
            raise ModelError(
                f"{type(context.model).__name__} has no classification head: it gives {outputs} output, and "
                "tent needs logits of at least 2 classes. For regression, use a method such as ssa."
            )
        return _Entropy()


class _Entropy(Rule):
    @property
    def capturable(self) -> bool:
        """True: the rule is stateless."""
        return True

    def update(self, batch: Batch) -> Tensor:
        """Return the mean entropy of the predictions."""
        return entropy(batch.outputs).mean()
