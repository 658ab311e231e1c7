"""Tent: entropy minimisation, for classification heads.

Wang, Shelhamer, Liu, Olshausen and Darrell, "Tent: Fully Test-time Adaptation by Entropy Minimization",
ICLR 2021. A regressor's output is no distribution and has no entropy: Tent is here for classifiers, by
itself and summed with SSA (``regtta.method("tent+ssa")``), as in the paper's classification tables.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from regtta.divergences import entropy
from regtta.errors import ModelError
from regtta.methods.base import Batch, GradientMethod, MethodContext, Rule


@dataclass(frozen=True, kw_only=True)
class Tent(GradientMethod):
    """Minimises the entropy of a classifier's predictions.

    ``L = mean_i H(softmax(f(x_i)))``

    Example:
        >>> Tent().trainable
        'affine'
    """

    name: ClassVar[str] = "tent"
    paper: ClassVar[str] = "Wang et al., ICLR 2021"
    needs_head: ClassVar[bool] = True

    def start(self, context: MethodContext) -> Rule:
        """Refuse a head that cannot be a classifier's."""
        outputs = context.require_head().out_features
        if outputs < 2:
            raise ModelError(
                f"{type(context.model).__name__} has no classification head: it gives {outputs} output, and "
                "tent needs logits of at least 2 classes. For regression take a method such as ssa."
            )
        return _Entropy()


class _Entropy(Rule):
    @property
    def repeats(self) -> bool:
        """It looks at nothing but the batch."""
        return True

    def update(self, batch: Batch) -> Tensor:
        """The mean entropy of the batch."""
        return entropy(batch.outputs).mean()
