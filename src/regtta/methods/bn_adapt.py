"""BN-adapt: BatchNorm statistics from the target.

Benz, Zhang, Karjauv and Kweon, "Revisiting Batch Normalization for Improving Corruption Robustness",
WACV 2021. Nothing had to change for regression: no label and no output is looked at.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from regtta.errors import ModelError
from regtta.methods.base import Batch, Method, Rule, Schedule, Stage
from regtta.options import check_choice
from regtta.parameters import batch_norms


@dataclass(frozen=True, kw_only=True)
class BNAdapt(Method):
    """Normalises by each batch and moves BatchNorm's running statistics to the target's.

    Args:
        batch_norm: ``"batch"`` updates them with each layer's own momentum; ``"debiased"`` leaves
            nothing of the source in them, however short the stream.
    """

    batch_norm: Literal["batch", "debiased"] = "batch"

    name: ClassVar[str] = "bn_adapt"
    paper: ClassVar[str] = "Benz et al., WACV 2021"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choice("batch_norm", self.batch_norm, ("batch", "debiased"))

    @property
    def schedule(self) -> Schedule:
        """Running statistics move, parameters do not."""
        return Schedule(batch_norm=self.batch_norm)

    def start(self, stage: Stage) -> Rule:
        """A rule that asks for nothing beyond the forward pass itself."""
        if not any(layer.track_running_stats for layer in batch_norms(stage.model)):
            raise ModelError(
                f"{type(stage.model).__name__} has no BatchNorm layer with running statistics, and "
                "bn_adapt moves nothing else. Take a method that fits, such as ssa."
            )
        return _ForwardOnly()


class _ForwardOnly(Rule):
    def update(self, batch: Batch) -> None:
        """Nothing: the forward pass has already moved the running statistics."""
