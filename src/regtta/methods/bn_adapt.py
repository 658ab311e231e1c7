"""BN-adapt: BatchNorm statistics estimated on the target.

Benz, Zhang, Karjauv and Kweon, "Revisiting Batch Normalization for Improving Corruption Robustness",
WACV 2021. Applies to regression unchanged, since it uses neither labels nor outputs.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from regtta.errors import ModelError
from regtta.methods.base import Method, MethodContext, Schedule
from regtta.methods.rules import Batch, Rule
from regtta.models import batch_norm_layers
from regtta.options import added_later, check_choice, check_momentum, check_positive_int


@dataclass(frozen=True, kw_only=True)
class BNAdapt(Method):
    """Normalisation by each batch, with BatchNorm's running statistics updated on the target.

    Args:
        batch_norm: ``"batch"`` updates the running statistics of the source; ``"debiased"`` estimates
            them from the target alone, however short the stream; ``"blended"`` normalises by source and target
            statistics weighted by their sample counts, for small batches (Schneider et al., NeurIPS 2020).
        prior: number of samples that the source statistics count as with ``batch_norm="blended"``.
        bn_momentum: weight m of a batch in the running statistics with ``"batch"``, and ``m / (1 − (1−m)ⁿ)`` at the
            n-th update with ``"debiased"``; ``None`` is each layer's own.
    """

    batch_norm: Literal["batch", "debiased", "blended"] = "batch"
    prior: int = 32
    bn_momentum: float | None = added_later(None)

    name: ClassVar[str] = "bn_adapt"
    paper: ClassVar[str] = "Benz et al., WACV 2021"

    def __post_init__(self) -> None:
        """Validate fields."""
        check_choice("batch_norm", self.batch_norm, ("batch", "debiased", "blended"))
        check_positive_int("prior", self.prior)
        check_momentum("bn_momentum", self.bn_momentum)

    @property
    def schedule(self) -> Schedule:
        """Schedule that updates running statistics and no parameters."""
        return Schedule(batch_norm=self.batch_norm, prior=self.prior, bn_momentum=self.bn_momentum)

    @property
    def supports_single_samples(self) -> bool:
        """True if the statistics are blended, as these cover previous samples."""
        return self.batch_norm == "blended"

    def start(self, context: MethodContext) -> Rule:
        """Return a rule without updates of its own, or raise ModelError if there are no running statistics."""
        if not any(layer.track_running_stats for layer in batch_norm_layers(context.model)):
            raise ModelError(
                f"{type(context.model).__name__} has no BatchNorm layer with running statistics, which are all that "
                "bn_adapt updates. Use another method, such as ssa."
            )
        return _ForwardOnly()


class _ForwardOnly(Rule):
    @property
    def capturable(self) -> bool:
        """True: the rule is stateless."""
        return True

    def update(self, batch: Batch) -> None:
        """Return no update: the forward pass has already updated the running statistics."""
