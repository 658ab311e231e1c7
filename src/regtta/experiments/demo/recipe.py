"""What the demo compares, and on how much: every constant of it in one place.

The methods run with the library's defaults, which are the SSA paper's (Adam, lr 1e-3, affine
parameters, k = 100 of the 128 directions): none was tuned on these digits.

BatchNorm's running statistics keep (1 − 0.1)ⁿ of the source after n batches, 5 % after the 28 of this
short stream. Each adapting method therefore runs a second time with debiased running statistics,
which keep nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from regtta.errors import OptionError
from regtta.experiments.demo.degradations import DEGRADATIONS, Degradation
from regtta.experiments.demo.training import Training
from regtta.methods import SSA, BNAdapt, FeatureAlignment, Method, Source

CLEAN = "clean"
SOURCE = "source"


@dataclass(frozen=True)
class Arm:
    """One method as it takes part.

    Args:
        name: in the results.
        label: in tables and figures.
        method: with its hyperparameters.
        rival: name of the arm it has to beat: BN-adapt with the same running statistics, and for
            the debiased BN-adapt the plain one.
    """

    name: str
    label: str
    method: Method
    rival: str | None = None


ARMS: tuple[Arm, ...] = (
    Arm(SOURCE, "Source", Source()),
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
    """The whole demo but for its seeds.

    Args:
        source_digits: how many to train on.
        target_digits: how many to adapt to; ``None`` for all others.
        batch_size: digits a batch of the target stream.
        training: how source models are trained.
        degradations: by name.
        arms: the methods; the first is Source.
    """

    source_digits: int = 900
    target_digits: int | None = None
    batch_size: int = 32
    training: Training = field(default_factory=Training)
    degradations: Mapping[str, Degradation] = field(default_factory=lambda: DEGRADATIONS)
    arms: tuple[Arm, ...] = ARMS

    def __post_init__(self) -> None:
        """Refuse arms that cannot be compared."""
        names = [arm.name for arm in self.arms]
        unknown = {arm.rival for arm in self.arms} - {None, *names}
        if names[:1] != [SOURCE] or len(set(names)) < len(names) or unknown:
            raise OptionError(
                f"Expected arms of different names, {SOURCE!r} first, with rivals among them, found "
                f"{names} with the rivals {sorted(map(str, unknown))} missing."
            )
        if len(names) < 2 or not self.degradations or CLEAN in self.degradations:
            raise OptionError(
                f"Expected two arms and one degradation at the least, none called {CLEAN!r} (the undegraded "
                f"stream), found the arms {names} and the degradations {list(self.degradations)}."
            )

    @property
    def scenes(self) -> tuple[str, ...]:
        """The streams: the clean one, then one for each degradation."""
        return (CLEAN, *self.degradations)

    def arm(self, name: str) -> Arm:
        """The arm called ``name``."""
        return next(arm for arm in self.arms if arm.name == name)
