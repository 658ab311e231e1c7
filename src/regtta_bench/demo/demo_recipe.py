"""Settings and seeds of the demo."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from regtta.errors import OptionError
from regtta.methods import SSA, BNAdapt, FeatureAlignment, Method, NoAdaptation
from regtta_bench.demo.demo_data import DEGRADATIONS, Degradation
from regtta_bench.demo.demo_model import DigitTraining

CLEAN = "clean"
SOURCE = "source"


@dataclass(frozen=True)
class DemoMethod:
    """One method of the comparison.

    Args:
        name: name in the results.
        label: name in tables and figures.
        method: method with its hyperparameters.
        baseline: name of the method to compare with: BN-adapt with the same running statistics, and for the debiased
            BN-adapt the plain one.
    """

    name: str
    label: str
    method: Method
    baseline: str | None = None


_DEBIASED: Any = {"batch_norm": "debiased", "bn_momentum": SSA().bn_momentum}  # running statistics as in SSA

DEMO_METHODS: tuple[DemoMethod, ...] = (
    DemoMethod(SOURCE, "Source", NoAdaptation()),
    DemoMethod("bn_adapt", "BN-adapt", BNAdapt(), SOURCE),
    DemoMethod("feature_alignment", "Alignment", FeatureAlignment(), "bn_adapt"),
    DemoMethod("ssa_paper", "SSA, paper", SSA.from_paper(clip=True), "bn_adapt"),
    DemoMethod("bn_adapt_debiased", "BN-adapt debiased", BNAdapt(**_DEBIASED), "bn_adapt"),
    DemoMethod("feature_alignment_debiased", "Alignment debiased", FeatureAlignment(**_DEBIASED), "bn_adapt_debiased"),
    DemoMethod("ssa", "SSA", SSA(), "bn_adapt_debiased"),
)


@dataclass(frozen=True)
class DemoRecipe:
    """Configuration of the demo except for its seeds.

    Args:
        source_digits: number of digits to train on.
        target_digits: number of digits to adapt to; ``None`` for all others.
        batch_size: digits per batch of the target stream.
        training: hyperparameters of the source models.
        degradations: degradations by name.
        methods: methods to compare; the first must be Source.
    """

    source_digits: int = 900
    target_digits: int | None = None
    batch_size: int = 32
    training: DigitTraining = field(default_factory=DigitTraining)
    degradations: Mapping[str, Degradation] = field(default_factory=lambda: DEGRADATIONS)
    methods: tuple[DemoMethod, ...] = DEMO_METHODS

    def __post_init__(self) -> None:
        """Validate methods and degradations."""
        names = [entry.name for entry in self.methods]
        unknown = {entry.baseline for entry in self.methods} - {None, *names}
        if names[:1] != [SOURCE] or len(set(names)) < len(names) or unknown:
            raise OptionError(
                f"Expected methods with unique names, {SOURCE!r} first, whose baselines are methods too, found "
                f"{names}; unknown baselines: {sorted(map(str, unknown))}."
            )
        if len(names) < 2 or not self.degradations or CLEAN in self.degradations:
            raise OptionError(
                f"Expected at least two methods and one degradation, none called {CLEAN!r} (the undegraded stream), "
                f"found the methods {names} and the degradations {list(self.degradations)}."
            )

    @property
    def scenes(self) -> tuple[str, ...]:
        """Names of the streams: the clean one, then one per degradation."""
        return (CLEAN, *self.degradations)

    @property
    def main_methods(self) -> tuple[DemoMethod, ...]:
        """Methods except the variants of the baselines with debiased running statistics."""
        return tuple(
            entry
            for entry in self.methods
            if entry.method.schedule.batch_norm != "debiased" or isinstance(entry.method, SSA)
        )

    def find_method(self, name: str) -> DemoMethod:
        """Return the method called ``name``."""
        return next(entry for entry in self.methods if entry.name == name)
