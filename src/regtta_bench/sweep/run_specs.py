"""Run specifications, and the plan that maps the cells of a table to runs."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from regtta.errors import FileError
from regtta.methods import SSA, FeatureAlignment, Method, Sum, VarianceMinimization
from regtta_bench.paper import (
    GUARD_PRESETS,
    CellSpec,
    MethodConfig,
    Part,
    Setting,
    TableSpec,
    depends_on_order,
    make_method_config,
    with_seed,
)
from regtta_bench.sweep.run_keys import describe_guards, describe_method
from regtta_bench.sweep.source_models import SourceSpec
from regtta_bench.sweep.store import compute_key
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

    def scale_recipe(self, recipe: Recipe) -> Recipe:
        """Return ``recipe`` scaled down."""
        side = self.photo_side if recipe.photo_side else 0
        changes = {"epochs": self.epochs, "batch_size": self.batch_size, "photo_side": side}
        return replace(recipe, **{name: value for name, value in changes.items() if value})  # type: ignore[arg-type]

    def scale_method_config(self, method_config: MethodConfig) -> MethodConfig:
        """Return ``method_config`` scaled down."""
        size = min(method_config.batch_size, self.batch_size) if self.batch_size else method_config.batch_size
        return replace(method_config, method=self._scale_method(method_config.method), batch_size=size)

    def _scale_method(self, method: Method) -> Method:
        if isinstance(method, Sum):
            return replace(method, terms=tuple(self._scale_method(term) for term in method.terms))  # type: ignore[misc]
        if self.views and isinstance(method, VarianceMinimization):
            return replace(method, views=self.views)
        if self.k and isinstance(method, SSA | FeatureAlignment) and isinstance(method.k, int):
            return replace(method, k=min(method.k, self.k))
        return method


FULL_SCALE = Scale()
QUICK_SCALE = Scale(train_rows=32, target_rows=16, epochs=1, batch_size=8, photo_side=64, views=2, k=16)


@dataclass(frozen=True)
class RunSpec:
    """Specification of one run.

    Attributes:
        source: specification of the source model.
        target: name of the target domain; empty for measurements on the source model.
        method_config: the method to adapt with; None for measurements on the source model.
        seed: seed of the order of the stream and of the method's random draws.
        target_rows: number of target samples; 0 for all.
    """

    source: SourceSpec
    target: str = ""
    method_config: MethodConfig | None = None
    seed: int = 0
    target_rows: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the JSON-serialisable key of the run."""
        key: dict[str, object] = {"source": self.source.to_dict()}
        if self.method_config is not None:
            key |= {
                "target": self.target,
                "target_rows": self.target_rows,
                "method": _describe_with_module(self.method_config.method),
                "batch_size": self.method_config.batch_size,
                "seed": self.seed,
            }
            key |= _describe_preset(self.method_config)
        return key


def _describe_preset(method_config: MethodConfig) -> dict[str, object]:
    """Describe the guards for the run's key; the default ones are left out, as runs before presets had no others.

    The thresholds are hashed, since they would make up half of the line.
    """
    if method_config.guards == "default":
        return {}
    mark = compute_key({"guards": describe_guards(GUARD_PRESETS[method_config.guards])})
    return {"guards": method_config.guards, "guards_mark": mark}


def _describe_with_module(method: Method) -> dict[str, object]:
    """Describe a method for the run's key; custom methods include their module, as names may collide."""
    module = type(method).__module__
    origin = {} if module.startswith(("regtta.", "regtta_bench.")) else {"module": module}
    return {"name": method.name, **origin, **describe_method(method)}


@dataclass(frozen=True)
class SweepPlan:
    """Numbers of source models and seeds behind every table value.

    Attributes:
        source_seeds: number of source models, or the range of their seeds; None for each setting's default.
        seeds: number of adaptation seeds per method and source model.
        scale: limits on the size of runs.
        weights: files of pretrained weights by architecture.
    """

    source_seeds: int | range | None = None
    seeds: int = 3
    scale: Scale = FULL_SCALE
    weights: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def source_seed_range(self, setting: Setting) -> range:
        """Return the seeds of a setting's source models.

        A range of seeds is limited to the setting's own number: seed 4 exists only where there are five models.
        """
        if isinstance(self.source_seeds, range):
            return range(self.source_seeds.start, min(self.source_seeds.stop, setting.source_seeds))
        return range(self.source_seeds or setting.source_seeds)

    def cell_runs(self, cell: CellSpec, source_seed: int, seed: int) -> tuple[tuple[RunSpec, Part], ...]:
        """Return the runs, with their parts, whose mean is one value of a cell."""
        method_config = (
            None if cell.method_config is None else with_seed(self.scale.scale_method_config(cell.method_config), seed)
        )
        fixed = method_config is None or not depends_on_order(method_config)
        return tuple(
            (
                RunSpec(
                    source=self.source_spec(
                        cell.setting, part, cell.task if method_config is None else method_config.objective, source_seed
                    ),
                    target="" if method_config is None else part.target,
                    method_config=method_config,
                    seed=0 if fixed else seed,
                    target_rows=0 if method_config is None else self.scale.target_rows,
                ),
                part,
            )
            for part in cell.parts
        )

    def source_spec(self, setting: Setting, part: Part, objective: str, seed: int) -> SourceSpec:
        """Return the specification of the source model for a part."""
        return SourceSpec(
            data=setting.data,
            model=setting.model,
            objective=objective,
            recipe=self.scale.scale_recipe(setting.recipe),
            seed=seed,
            variant=part.variant,
            against=part.target if objective == "dann" else "",
            start=weights_digest(self.weights[setting.model]) if setting.model in self.weights else "random",
            rows=self.scale.train_rows,
        )

    def all_runs(self, table_specs: Iterable[TableSpec]) -> tuple[RunSpec, ...]:
        """Return all distinct runs that the tables and their comparisons need."""
        cells = [cell for table_spec in table_specs for cell in table_spec.cells()]
        cells += [reference for cell in cells for reference in reference_cells(cell)]
        return tuple(
            dict.fromkeys(
                spec
                for cell in dict.fromkeys(cells)
                for source_seed in self.source_seed_range(cell.setting)
                for seed in range(self.seeds)
                for spec, _ in self.cell_runs(cell, source_seed, seed)
            )
        )


def reference_cells(cell: CellSpec) -> tuple[CellSpec, ...]:
    """Return the reference cells for comparisons: SSA with the paper's options, and the source model."""
    if cell.method_config is None:
        return ()
    return tuple(
        replace(cell, method_config=make_method_config(cell.setting, name, task=cell.task), paper=None)
        for name in ("ssa", "source")
    )


def weights_digest(path: Path) -> str:
    """Return a digest of a weights file, cached until the file changes since every run of a plan needs it."""
    try:
        now = path.stat()
        return _file_digest(path, now.st_size, now.st_mtime_ns)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}.") from error


@lru_cache
def _file_digest(path: Path, size: int, modified: int) -> str:  # noqa: ARG001 - size and time invalidate the cache
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def check_weights(weights: Mapping[str, Path]) -> None:
    """Raise ``FileError`` if a file cannot be read or its model does not support pretrained weights."""
    for model, path in weights.items():
        if model not in PRETRAINED_MODELS:
            raise FileError(
                f"{model} does not support pretrained weights; supported are {', '.join(PRETRAINED_MODELS)}."
            )
        weights_digest(path)
