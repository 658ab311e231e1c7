"""Summary statistics of the runs: spreads over source models, and paired differences."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regtta.experiments.demo.recipe import Recipe
from regtta.experiments.demo.study import Run
from regtta.experiments.numerals import number

SCORES: Mapping[str, str] = {"r2": "R²", "rmse": "RMSE, digits", "mae": "MAE, digits"}

# Differences that the tables round to 0.000 count as none in the sentences.
LEVEL = 5e-4


@dataclass(frozen=True)
class Spread:
    """One value per source model, in the order of their seeds; ``None`` where the run diverged.

    Example:
        >>> Spread((0.5, 0.75)).text(), Spread((0.5, None)).text(), Spread((-0.25,)).text()
        ('0.625 ±0.177', 'diverged 1/2', '−0.250')
    """

    values: tuple[float | None, ...]

    @property
    def diverged(self) -> int:
        """Number of source models whose run diverged."""
        return self.values.count(None)

    @property
    def finite(self) -> tuple[float, ...]:
        """Values of the runs that did not diverge."""
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Mean over all source models; ``None`` if any run diverged, because a mean must not hide that."""
        return None if self.diverged else statistics.fmean(self.finite)

    @property
    def sd(self) -> float | None:
        """Sample standard deviation; ``None`` for a single source model or if any run diverged."""
        return None if self.diverged or len(self.values) < 2 else statistics.stdev(self.finite)

    def text(self, *, signed: bool = False) -> str:
        """Format as ``mean ±sd``; ``signed`` adds a plus sign to positive means."""
        if self.mean is None:
            return f"diverged {self.diverged}/{len(self.values)}"
        spread = "" if self.sd is None else f" ±{self.sd:.3f}"
        return number(self.mean, signed=signed) + spread

    def direction(self) -> int | None:
        """Return the common sign of all source models: 1, −1, or 0 if all are below ``LEVEL``, else ``None``.

        Also ``None`` if any run diverged.
        """
        sides = {0 if abs(value) < LEVEL else int(math.copysign(1, value)) for value in self.finite}
        return sides.pop() if len(sides) == 1 and not self.diverged else None


@dataclass(frozen=True)
class Study:
    """All runs of one demo.

    Attributes:
        recipe: configuration of the demo.
        seeds: consecutive seeds of the source models.
        runs: runs of every method on every stream from every source model.
    """

    recipe: Recipe
    seeds: tuple[int, ...]
    runs: tuple[Run, ...]

    def sources(self) -> str:
        """Format the number of source models and their seeds."""
        first, last = self.seeds[0], self.seeds[-1]
        if first == last:
            return f"1 source model (seed {first})"
        return f"{len(self.seeds)} source models (seeds {first} to {last})"

    def spread(self, scene: str, arm: str, *, protocol: str = "offline", score: str = "r2") -> Spread:
        """Return a score over the source models."""
        by_seed = {run.seed: run for run in self.runs if run.scene == scene and run.arm == arm}
        return Spread(tuple(_score(by_seed[seed], protocol, score) for seed in self.seeds))

    def difference(self, scene: str, arm: str, against: str, *, protocol: str = "offline", score: str = "r2") -> Spread:
        """Return ``arm - against``, paired by source model on the same stream."""
        own = self.spread(scene, arm, protocol=protocol, score=score).values
        other = self.spread(scene, against, protocol=protocol, score=score).values
        pairs = zip(own, other, strict=True)
        return Spread(tuple(None if a is None or b is None else a - b for a, b in pairs))

    def mean_over(self, scenes: Iterable[str], arm: str) -> float | None:
        """Return the mean offline R² over source models and ``scenes``; ``None`` if any run diverged."""
        means = [self.spread(scene, arm).mean for scene in scenes]
        finite = [mean for mean in means if mean is not None]
        return statistics.fmean(finite) if finite and len(finite) == len(means) else None


def _score(run: Run, protocol: str, score: str) -> float | None:
    found = run.outcome.scores[protocol][score]
    return None if run.outcome.diverged or found is None else float(found)
