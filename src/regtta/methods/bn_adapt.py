"""BN-adapt: BatchNorm statistics from the target.

Benz, Zhang, Karjauv and Kweon, "Revisiting Batch Normalization for Improving Corruption Robustness",
WACV 2021. Nothing had to change for regression: no label and no output is looked at.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from regtta.batch_norm import batch_norms
from regtta.errors import ModelError
from regtta.methods.base import Batch, Method, MethodContext, Rule, Schedule
from regtta.options import check_choice, check_count


@dataclass(frozen=True, kw_only=True)
class BNAdapt(Method):
    """Normalises by each batch and moves BatchNorm's running statistics to the target's.

    Args:
        batch_norm: ``"batch"`` updates them with each layer's own momentum; ``"debiased"`` leaves
            nothing of the source in them, however short the stream; ``"blended"`` normalises by source and target
            weighted by their counts, for small batches (Schneider et al., NeurIPS 2020).
        prior: how many samples the source's statistics count as where they are blended.
    """

    batch_norm: Literal["batch", "debiased", "blended"] = "batch"
    prior: int = 32

    name: ClassVar[str] = "bn_adapt"
    paper: ClassVar[str] = "Benz et al., WACV 2021"

    def __post_init__(self) -> None:
        """Validate fields."""
        check_choice("batch_norm", self.batch_norm, ("batch", "debiased", "blended"))
        check_count("prior", self.prior)

    @property
    def schedule(self) -> Schedule:
        """Running statistics move, parameters do not."""
        return Schedule(batch_norm=self.batch_norm, prior=self.prior)

    @property
    def learns_from_one(self) -> bool:
        """A blend remembers the samples before."""
        return self.batch_norm == "blended"

    def start(self, context: MethodContext) -> Rule:
        """A rule that asks for nothing beyond the forward pass itself."""
        if not any(layer.track_running_stats for layer in batch_norms(context.model)):
            raise ModelError(
                f"{type(context.model).__name__} has no BatchNorm layer with running statistics, and "
                "bn_adapt moves nothing else. Take a method that fits, such as ssa."
            )
        return _ForwardOnly()


class _ForwardOnly(Rule):
    @property
    def repeats(self) -> bool:
        """It does nothing, every time."""
        return True

    def update(self, batch: Batch) -> None:
        """Nothing: the forward pass has already moved the running statistics."""
