"""Runs: everything that one is specified by, and which runs a cell of a table is made of."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from regtta.errors import FileError
from regtta.experiments.models import FROM_IMAGENET
from regtta.experiments.reproduce.arms import Arm, arm_of, follows_order, seeded_arm
from regtta.experiments.reproduce.layouts import Cell, Layout
from regtta.experiments.reproduce.settings import Part, Setting
from regtta.experiments.sources import SourceSpec
from regtta.experiments.specifying import specified
from regtta.experiments.training import Recipe
from regtta.methods import SSA, FeatureAlignment, Method, Sum, VarianceMinimization


@dataclass(frozen=True)
class Scale:
    """How much less than the paper a run does; 0 leaves each as it is.

    Attributes:
        train_rows: samples of the source.
        target_rows: samples of the target.
        epochs: of the training.
        batch_size: of training and adaptation.
        photo_side: of photographs.
        views: of variance minimisation.
        k: dimensions that are aligned; so few samples as a scaled run has span no more.
    """

    train_rows: int = 0
    target_rows: int = 0
    epochs: int = 0
    batch_size: int = 0
    photo_side: int = 0
    views: int = 0
    k: int = 0

    def recipe(self, recipe: Recipe) -> Recipe:
        """``recipe``, scaled."""
        side = self.photo_side if recipe.photo_side else 0
        changes = {"epochs": self.epochs, "batch_size": self.batch_size, "photo_side": side}
        return replace(recipe, **{name: value for name, value in changes.items() if value})  # type: ignore[arg-type]

    def arm(self, arm: Arm) -> Arm:
        """``arm``, scaled."""
        size = min(arm.batch_size, self.batch_size) if self.batch_size else arm.batch_size
        return replace(arm, method=self._method(arm.method), batch_size=size)

    def _method(self, method: Method) -> Method:
        if isinstance(method, Sum):
            return replace(method, terms=tuple(self._method(term) for term in method.terms))  # type: ignore[misc]
        if self.views and isinstance(method, VarianceMinimization):
            return replace(method, views=self.views)
        if self.k and isinstance(method, SSA | FeatureAlignment) and isinstance(method.k, int):
            return replace(method, k=min(method.k, self.k))
        return method


FULL = Scale()
QUICK = Scale(train_rows=32, target_rows=16, epochs=1, batch_size=8, photo_side=64, views=2, k=16)


@dataclass(frozen=True)
class RunSpec:
    """One run.

    Attributes:
        source: the model it starts from.
        target: what it adapts to; empty for what is measured on the source model alone.
        arm: how; None for what is measured on the source model alone.
        seed: of the order of the stream and of what the method draws.
        target_rows: how many samples of the target; 0 for all.
    """

    source: SourceSpec
    target: str = ""
    arm: Arm | None = None
    seed: int = 0
    target_rows: int = 0

    def plain(self) -> dict[str, object]:
        """As JSON has it: the key of the run."""
        about: dict[str, object] = {"source": self.source.plain()}
        if self.arm is not None:
            about |= {
                "target": self.target,
                "target_rows": self.target_rows,
                "method": _described(self.arm.method),
                "batch_size": self.arm.batch_size,
                "seed": self.seed,
            }
        return about


def _described(method: Method) -> dict[str, object]:
    """A method and where it is from, so that two of one name are not taken for each other."""
    module = type(method).__module__
    origin = {} if module.startswith("regtta.") else {"module": module}
    return {"name": method.name, **origin, **specified(method)}


@dataclass(frozen=True)
class Plan:
    """Which source models and seeds stand behind every number.

    Attributes:
        source_seeds: how many source models; None for each setting's own number.
        seeds: how many runs of each method on each of them.
        scale: of everything.
        weights: files that models start from, by the name of the architecture.
    """

    source_seeds: int | None = None
    seeds: int = 3
    scale: Scale = FULL
    weights: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def sources(self, setting: Setting) -> range:
        """The seeds of a setting's source models."""
        return range(self.source_seeds or setting.source_seeds)

    def runs(self, cell: Cell, source_seed: int, seed: int) -> tuple[tuple[RunSpec, Part], ...]:
        """What one value of a cell is the mean of."""
        arm = None if cell.arm is None else seeded_arm(self.scale.arm(cell.arm), seed)
        fixed = arm is None or not follows_order(arm)
        return tuple(
            (
                RunSpec(
                    source=self.source(cell.setting, part, cell.task if arm is None else arm.objective, source_seed),
                    target="" if arm is None else part.target,
                    arm=arm,
                    seed=0 if fixed else seed,
                    target_rows=0 if arm is None else self.scale.target_rows,
                ),
                part,
            )
            for part in cell.parts
        )

    def source(self, setting: Setting, part: Part, objective: str, seed: int) -> SourceSpec:
        """The source model behind a part."""
        return SourceSpec(
            data=setting.data,
            model=setting.model,
            objective=objective,
            recipe=self.scale.recipe(setting.recipe),
            seed=seed,
            variant=part.variant,
            against=part.target if objective == "dann" else "",
            start=mark_of(self.weights[setting.model]) if setting.model in self.weights else "random",
            rows=self.scale.train_rows,
        )

    def all_runs(self, layouts: Iterable[Layout]) -> tuple[RunSpec, ...]:
        """Every run that the tables need, and those that methods are compared with, each once."""
        cells = [cell for layout in layouts for cell in layout.cells()]
        cells += [reference for cell in cells for reference in references(cell)]
        return tuple(
            dict.fromkeys(
                spec
                for cell in dict.fromkeys(cells)
                for source_seed in self.sources(cell.setting)
                for seed in range(self.seeds)
                for spec, _ in self.runs(cell, source_seed, seed)
            )
        )


def references(cell: Cell) -> tuple[Cell, ...]:
    """What the methods of a cell's kind are compared with: SSA as the paper runs it, and the source model."""
    if cell.arm is None:
        return ()
    return tuple(
        replace(cell, arm=arm_of(cell.setting, name, task=cell.task), paper=None) for name in ("ssa", "source")
    )


def mark_of(path: Path) -> str:
    """The mark of a file of weights, read again only where it has changed: every run of a plan asks for it."""
    try:
        now = path.stat()
        return _digest(path, now.st_size, now.st_mtime_ns)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}.") from error


@lru_cache
def _digest(path: Path, size: int, modified: int) -> str:  # noqa: ARG001 - what tells one content from the next
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def check_weights(weights: Mapping[str, Path]) -> None:
    """Raise if one of the files cannot be read, or names a model that starts from none."""
    for model, path in weights.items():
        if model not in FROM_IMAGENET:
            raise FileError(f"{model} starts from no weights; {', '.join(FROM_IMAGENET)} do.")
        mark_of(path)
