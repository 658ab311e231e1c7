"""Settings and seeds of the demo."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from regtta.errors import OptionError
from regtta.methods import SSA, BNAdapt, FeatureAlignment, Method, NoAdaptation
from regtta_bench.demo.demo_data import DEGRADATIONS, Degradation
from regtta_bench.demo.demo_model import Training

CLEAN = "clean"
SOURCE = "source"


@dataclass(frozen=True)
class Arm:
    """One method of the comparison.

    Args:
        name: name in the results.
        label: name in tables and figures.
        method: method with its hyperparameters.
        rival: name of the baseline arm: BN-adapt with the same running statistics, and for the debiased BN-adapt the
            plain one.
    """

    name: str
    label: str
    method: Method
    rival: str | None = None


ARMS: tuple[Arm, ...] = (
    Arm(SOURCE, "Source", NoAdaptation()),
    Arm("bn_adapt", "BN-adapt", BNAdapt(), SOURCE),
    Arm("feature_alignment", "Alignment", FeatureAlignment(), "bn_adapt"),
    Arm("ssa", "SSA", SSA(), "bn_adapt"),
    Arm("bn_adapt_debiased", "BN-adapt debiased", BNAdapt(batch_norm="debiased"), "bn_adapt"),
    Arm(
        "feature_alignment_debiased",
        "Alignment debiased",
        FeatureAlignment(batch_norm="debiased"),
        "bn_adapt_debiased",
    ),
    Arm("ssa_debiased", "SSA debiased", SSA(batch_norm="debiased"), "bn_adapt_debiased"),
)


@dataclass(frozen=True)
class Recipe:
    """Configuration of the demo except for its seeds.

    Args:
        source_digits: number of digits to train on.
        target_digits: number of digits to adapt to; ``None`` for all others.
        batch_size: digits per batch of the target stream.
        training: hyperparameters of the source models.
        degradations: degradations by name.
        arms: methods to compare; the first must be Source.
    """

    source_digits: int = 900
    target_digits: int | None = None
    batch_size: int = 32
    training: Training = field(default_factory=Training)
    degradations: Mapping[str, Degradation] = field(default_factory=lambda: DEGRADATIONS)
    arms: tuple[Arm, ...] = ARMS

    def __post_init__(self) -> None:
        """Validate arms and degradations."""
        names = [arm.name for arm in self.arms]
        unknown = {arm.rival for arm in self.arms} - {None, *names}
        if names[:1] != [SOURCE] or len(set(names)) < len(names) or unknown:
            raise OptionError(
                f"Expected arms with unique names, {SOURCE!r} first, whose rivals are arms too, found {names}; unknown "
                f"rivals: {sorted(map(str, unknown))}."
            )
        if len(names) < 2 or not self.degradations or CLEAN in self.degradations:
            raise OptionError(
                f"Expected at least two arms and one degradation, none called {CLEAN!r} (the undegraded stream), found "
                f"the arms {names} and the degradations {list(self.degradations)}."
            )

    @property
    def scenes(self) -> tuple[str, ...]:
        """Names of the streams: the clean one, then one per degradation."""
        return (CLEAN, *self.degradations)

    def arm(self, name: str) -> Arm:
        """Return the arm called ``name``."""
        return next(arm for arm in self.arms if arm.name == name)
