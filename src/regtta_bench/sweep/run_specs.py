"""Run specifications, and the plan that maps the cells of a table to runs."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from regtta.errors import FileError
from regtta.methods import SSA, FeatureAlignment, Method, Sum, VarianceMinimization
from regtta_bench.paper import Arm, Cell, Layout, Part, Setting, arm_of, follows_order, seeded_arm
from regtta_bench.sweep.run_keys import specified
from regtta_bench.sweep.source_models import SourceSpec
from regtta_bench.training import PRETRAINED_MODELS, Recipe


@dataclass(frozen=True)
class Scale:
    """Limits that scale runs down from the paper's size; 0 leaves a quantity unchanged.

    Attributes:
        train_rows: number of source samples.
        target_rows: number of target samples.
        epochs: training epochs.
        batch_size: batch size of training and adaptation.
        photo_side: side length of photographs in pixels.
        views: number of augmented views in variance minimisation.
        k: number of aligned dimensions; the few samples of a scaled run span no more.
    """

    train_rows: int = 0
    target_rows: int = 0
    epochs: int = 0
    batch_size: int = 0
    photo_side: int = 0
    views: int = 0
    k: int = 0

    def recipe(self, recipe: Recipe) -> Recipe:
        """Return ``recipe`` scaled down."""
        side = self.photo_side if recipe.photo_side else 0
        changes = {"epochs": self.epochs, "batch_size": self.batch_size, "photo_side": side}
        return replace(recipe, **{name: value for name, value in changes.items() if value})  # type: ignore[arg-type]

    def arm(self, arm: Arm) -> Arm:
        """Return ``arm`` scaled down."""
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
    """Specification of one run.

    Attributes:
        source: specification of the source model.
        target: name of the target domain; empty for measurements on the source model.
        arm: the method to adapt with; None for measurements on the source model.
        seed: seed of the order of the stream and of the method's random draws.
        target_rows: number of target samples; 0 for all.
    """

    source: SourceSpec
    target: str = ""
    arm: Arm | None = None
    seed: int = 0
    target_rows: int = 0

    def plain(self) -> dict[str, object]:
        """Return the JSON-serialisable key of the run."""
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
    """Describe a method for the run's key; custom methods include their module, as names may collide."""
    module = type(method).__module__
    origin = {} if module.startswith("regtta.") else {"module": module}
    return {"name": method.name, **origin, **specified(method)}


@dataclass(frozen=True)
class Plan:
    """Numbers of source models and seeds behind every table value.

    Attributes:
        source_seeds: number of source models; None for each setting's default.
        seeds: number of adaptation seeds per method and source model.
        scale: limits on the size of runs.
        weights: files of pretrained weights by architecture.
    """

    source_seeds: int | None = None
    seeds: int = 3
    scale: Scale = FULL
    weights: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def sources(self, setting: Setting) -> range:
        """Return the seeds of a setting's source models."""
        return range(self.source_seeds or setting.source_seeds)

    def runs(self, cell: Cell, source_seed: int, seed: int) -> tuple[tuple[RunSpec, Part], ...]:
        """Return the runs, with their parts, whose mean is one value of a cell."""
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
        """Return the specification of the source model for a part."""
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
        """Return all distinct runs that the tables and their comparisons need."""
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
    """Return the reference cells for comparisons: SSA with the paper's options, and the source model."""
    if cell.arm is None:
        return ()
    return tuple(
        replace(cell, arm=arm_of(cell.setting, name, task=cell.task), paper=None) for name in ("ssa", "source")
    )


def mark_of(path: Path) -> str:
    """Return a digest of a weights file, cached until the file changes since every run of a plan needs it."""
    try:
        now = path.stat()
        return _digest(path, now.st_size, now.st_mtime_ns)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}.") from error


@lru_cache
def _digest(path: Path, size: int, modified: int) -> str:  # noqa: ARG001 - size and time invalidate the cache
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def check_weights(weights: Mapping[str, Path]) -> None:
    """Raise ``FileError`` if a file cannot be read or its model does not support pretrained weights."""
    for model, path in weights.items():
        if model not in PRETRAINED_MODELS:
            raise FileError(
                f"{model} does not support pretrained weights; supported are {', '.join(PRETRAINED_MODELS)}."
            )
        mark_of(path)
