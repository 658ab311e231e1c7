"""What the runs come to: spreads over source models, and paired differences."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regtta.experiments.demo.recipe import Recipe
from regtta.experiments.demo.study import Run
from regtta.experiments.numerals import number

SCORES: Mapping[str, str] = {"r2": "R²", "rmse": "RMSE, digits", "mae": "MAE, digits"}

# What rounds to 0.000 in the tables counts as no difference in the words.
LEVEL = 5e-4


@dataclass(frozen=True)
class Spread:
    """One number for each source model, in the order of their seeds; ``None`` where it diverged.

    Example:
        >>> Spread((0.5, 0.75)).text(), Spread((0.5, None)).text(), Spread((-0.25,)).text()
        ('0.625 ±0.177', 'diverged 1/2', '−0.250')
    """

    values: tuple[float | None, ...]

    @property
    def diverged(self) -> int:
        """How many source models diverged."""
        return self.values.count(None)

    @property
    def finite(self) -> tuple[float, ...]:
        """The numbers of the others."""
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Over all source models; ``None`` as soon as one diverged, which no mean may hide."""
        return None if self.diverged else statistics.fmean(self.finite)

    @property
    def sd(self) -> float | None:
        """Sample standard deviation; ``None`` for a single source model."""
        return None if self.diverged or len(self.values) < 2 else statistics.stdev(self.finite)

    def text(self, *, signed: bool = False) -> str:
        """``mean ±sd``, with a sign before positive means too where ``signed``."""
        if self.mean is None:
            return f"diverged {self.diverged}/{len(self.values)}"
        spread = "" if self.sd is None else f" ±{self.sd:.3f}"
        return number(self.mean, signed=signed) + spread

    def direction(self) -> int | None:
        """1 or −1 where all source models lie on that side of zero, 0 where none leaves it, else ``None``.

        A diverged one lies on no side.
        """
        sides = {0 if abs(value) < LEVEL else int(math.copysign(1, value)) for value in self.finite}
        return sides.pop() if len(sides) == 1 and not self.diverged else None


@dataclass(frozen=True)
class Study:
    """All runs of one demo.

    Attributes:
        recipe: what was compared.
        seeds: of the source models, one after the other.
        runs: every method on every stream from every source model.
    """

    recipe: Recipe
    seeds: tuple[int, ...]
    runs: tuple[Run, ...]

    def sources(self) -> str:
        """How many source models, and their seeds."""
        first, last = self.seeds[0], self.seeds[-1]
        if first == last:
            return f"1 source model (seed {first})"
        return f"{len(self.seeds)} source models (seeds {first} to {last})"

    def spread(self, scene: str, arm: str, *, protocol: str = "offline", score: str = "r2") -> Spread:
        """A score over the source models."""
        by_seed = {run.seed: run for run in self.runs if run.scene == scene and run.arm == arm}
        return Spread(tuple(_score(by_seed[seed], protocol, score) for seed in self.seeds))

    def difference(self, scene: str, arm: str, against: str, *, protocol: str = "offline", score: str = "r2") -> Spread:
        """``arm`` minus ``against``, paired: on the same source model and the same stream."""
        own = self.spread(scene, arm, protocol=protocol, score=score).values
        other = self.spread(scene, against, protocol=protocol, score=score).values
        pairs = zip(own, other, strict=True)
        return Spread(tuple(None if a is None or b is None else a - b for a, b in pairs))

    def mean_over(self, scenes: Iterable[str], arm: str) -> float | None:
        """Mean offline R² over source models and ``scenes``; ``None`` as soon as one run diverged."""
        means = [self.spread(scene, arm).mean for scene in scenes]
        finite = [mean for mean in means if mean is not None]
        return statistics.fmean(finite) if finite and len(finite) == len(means) else None


def _score(run: Run, protocol: str, score: str) -> float | None:
    found = run.outcome.scores[protocol][score]
    return None if run.outcome.diverged or found is None else float(found)
