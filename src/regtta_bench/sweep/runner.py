"""Worker for the paper's runs in one process: loads data, trains source models, collects statistics and adapts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch
from torch import nn

from regtta.adapter import Adapter
from regtta.errors import FileError
from regtta.methods import TTT, Method, NoAdaptation
from regtta.models import FeatureModel, fingerprint
from regtta.persistence import device_name, software_versions, to_dict
from regtta.report.analysis import weight_correlation
from regtta.statistics import SourceStatistics, collect
from regtta_bench.data import DEFAULT_BINS, LOADERS, DataLocation, Domain, LoadedDataset, check_available
from regtta_bench.paper import Arm, evaluate
from regtta_bench.sweep.data_views import BATCH, InBatches, cut, hushed, shown
from regtta_bench.sweep.interfaces import Told
from regtta_bench.sweep.run_specs import RunSpec, mark_of
from regtta_bench.sweep.source_models import SourceModels, SourceSpec
from regtta_bench.sweep.store import key_of
from regtta_bench.training import (
    HEADS,
    AdversarialObjective,
    Classification,
    Objective,
    Regression,
    RotationObjective,
    TrainingCheckpoint,
    create_model,
    eval_transform,
    make_seeded,
    train,
)

_SAID_BY_TABLES = ("regtta.methods", "regtta.statistics.source", "regtta_bench.training.models")
MOMENTS = "moments"  # file name mark of statistics that hold the moments only


@dataclass(frozen=True)
class Tools:
    """Configuration of a :class:`Workshop`; picklable, and valid on machines where its paths have the same content.

    Attributes:
        place: location of the data sets.
        models: folder of source models.
        device: device to run on.
        weights: files of pretrained weights by architecture.
    """

    place: DataLocation
    models: Path
    device: str = "cpu"
    weights: Mapping[str, Path] = field(default_factory=dict)  # picklable, unlike MappingProxyType

    def at(self, models: Path) -> "Tools":
        """Return a copy with another folder of source models."""
        return replace(self, models=models)

    def check(self, specs: Sequence[RunSpec]) -> None:
        """Raise if the data or pretrained weights that the runs need are missing on this machine."""
        self.check_sources(spec.source for spec in specs)

    def check_sources(self, sources: Iterable[SourceSpec]) -> None:
        """Raise if the data or pretrained weights of the source models are missing on this machine."""
        once = dict.fromkeys(sources)
        for data in dict.fromkeys(source.data for source in once):
            check_available(data, self.place)
        for source in once:
            file = self.weights.get(source.model)
            if file is not None and mark_of(file) != source.start:
                raise FileError(
                    f"{file} holds other weights than the file that the sweep was started with. Put the same file "
                    "there."
                )

    def worker(self, progress: Told) -> "Workshop":
        """Create a workshop with this configuration."""
        return Workshop(self, progress)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A trained source model, on its device.

    Attributes:
        model: the model in eval mode.
        branch: TTT's auxiliary head, if the model was trained with one.
        statistics: returns the source statistics, with what the given method needs beyond the moments.
        fingerprint: fingerprint of the weights: two trainings of one specification may differ on a GPU.
    """

    model: nn.Module
    branch: nn.Linear | None
    statistics: Callable[[Method | None], SourceStatistics]
    fingerprint: str


class Workshop:
    """Worker that trains source models and executes runs; caches the data, model and target of the last run.

    Args:
        tools: configuration.
        progress: callback on training progress: name of the model, epochs done, epochs in total.
    """

    def __init__(self, tools: Tools, progress: Told | None = None) -> None:
        self.tools = tools
        self._progress = progress or (lambda *_: None)
        self._models = SourceModels(tools.models)
        self._loaded: tuple[object, LoadedDataset] | None = None
        self._prepared: tuple[SourceSpec, Prepared] | None = None
        self._target: tuple[object, Domain] | None = None

    def run(self, spec: RunSpec) -> dict[str, object]:
        """Execute a run and return its JSON-serialisable result."""
        with quiet():
            prepared = self.prepare(spec.source)
            found = self._measured(spec, prepared) if spec.arm is None else self._adapted(spec, spec.arm, prepared)
        return found | {
            "source_fingerprint": prepared.fingerprint,
            "versions": software_versions(),
            "device": device_name(self.tools.device),
        }

    def prepare(self, spec: SourceSpec) -> Prepared:
        """Return the source model of ``spec`` with its statistics: loaded if stored, else trained."""
        if self._prepared is None or self._prepared[0] != spec:
            self._prepared = (spec, self._made(spec))
        return self._prepared[1]

    def ready(self, specs: Sequence[RunSpec]) -> None:
        """Train the source model that all of the runs share, and collect the statistics that their methods need."""
        if not specs:
            return
        prepared = self.prepare(specs[0].source)
        needed = {_gathered(spec): None for spec in specs if needs_statistics(spec)}
        # Extended statistics first: they also serve the methods that need the moments only.
        for method in sorted(needed, key=lambda method: method is None):
            prepared.statistics(method)

    # --- source models ---------------------------------------------------------------------------

    def _made(self, spec: SourceSpec) -> Prepared:
        data = self.data(spec)
        model = self._new_model(spec, data).to(self.tools.device)
        objective = self._objective(spec, model, data)
        parts = {"model": model} | {str(i): m.to(self.tools.device) for i, m in enumerate(objective.modules)}
        self._models.get(
            spec,
            parts,
            lambda: self._train(spec, model, data, objective),
        )
        branch = objective.branch if isinstance(objective, RotationObjective) else None
        return Prepared(model, branch, cache(lambda method: self._statistics(spec, model, method)), fingerprint(model))

    def _train(self, spec: SourceSpec, model: nn.Module, data: LoadedDataset, objective: Objective) -> None:
        train(
            model,
            data.train,
            spec.recipe,
            seed=spec.seed,
            objective=objective,
            on_epoch=lambda done, total: self._progress(spec.name, done, total),
            checkpoint=TrainingCheckpoint(self._models.checkpoint_path(spec)),
        )

    def _new_model(self, spec: SourceSpec, data: LoadedDataset) -> nn.Module:
        outputs = DEFAULT_BINS if spec.task == "classification" else data.train.targets.shape[1]
        weights = self.tools.weights.get(spec.model)
        return make_seeded(
            lambda: create_model(spec.model, outputs, inputs=data.train.inputs.shape[1], weights=weights), spec.seed
        )

    def _objective(self, spec: SourceSpec, model: nn.Module, data: LoadedDataset) -> Objective:
        if spec.objective == "classification":
            return Classification()
        if spec.objective == "regression":
            return Regression()
        head = HEADS[spec.model]
        width = FeatureModel(model, head).head.in_features
        if spec.objective == "rotation":
            return RotationObjective(head, width, seed=spec.seed)
        target = data.target(spec.against).inputs.to(self.tools.device)
        return AdversarialObjective(head, width, target, recipe=spec.recipe, seed=spec.seed)

    def _statistics(self, spec: SourceSpec, model: nn.Module, method: Method | None) -> SourceStatistics:
        gathers = () if method is None or not gathers_more(method) else (method,)
        mark = key_of({"gathers": [to_dict(method) for method in gathers]}) if gathers else MOMENTS
        path = self._models.statistics_path(spec, mark)
        if not gathers and not path.exists():
            # Extended statistics hold the same moments.
            path = next(iter(sorted(path.parent.glob(path.name.replace(MOMENTS, "*")))), path)
        if path.exists():
            return SourceStatistics.load(path)
        batches = InBatches(self.data(spec).train.inputs, spec, self.tools.device)
        statistics = collect(model, batches, head=HEADS[spec.model], methods=gathers)
        statistics.save(path, overwrite=True)
        return statistics

    # --- data ------------------------------------------------------------------------------------

    def data(self, spec: SourceSpec) -> LoadedDataset:
        """Return the data for a model of ``spec``: limited to its rows, with class labels for a classifier."""
        wanted = (spec.data, spec.variant, spec.seed, spec.rows, spec.task)
        if self._loaded is None or self._loaded[0] != wanted:
            self._loaded = None  # free the memory first: two data sets may not fit
            data = LOADERS[spec.data](self.tools.place, spec.variant, spec.seed)
            self._loaded = (wanted, shown(data, spec))
        return self._loaded[1]

    def _target_of(self, spec: RunSpec) -> Domain:
        """Return the target domain on the device, permuted by the run's seed."""
        source = spec.source
        wanted = (source.data, source.variant, source.seed, source.task, source.rows, spec.target, spec.target_rows)
        if self._target is None or self._target[0] != wanted:
            target = cut(self.data(source).target(spec.target), spec.target_rows)
            self._target = (wanted, target.to(self.tools.device))
        target = self._target[1]
        order = torch.randperm(len(target), generator=torch.Generator().manual_seed(spec.seed))
        return target.take(order.to(target.inputs.device))

    # --- runs ------------------------------------------------------------------------------------

    def _adapted(self, spec: RunSpec, arm: Arm, prepared: Prepared) -> dict[str, object]:
        method = arm.method
        if isinstance(method, TTT):
            method = replace(method, branch=prepared.branch)
        adapter = Adapter(
            prepared.model,
            method,
            prepared.statistics(method) if needs_statistics(spec) else None,
            head=HEADS[spec.source.model],
        )
        return self._evaluated(adapter, self._target_of(spec), spec, arm.batch_size)

    def _evaluated(self, adapter: Adapter, domain: Domain, spec: RunSpec, size: int) -> dict[str, object]:
        recipe, task = spec.source.recipe, spec.source.task
        outcome = evaluate(
            adapter, domain, batch_size=size, task=task, view=lambda inputs: eval_transform(inputs, recipe)
        )
        return outcome.plain()

    def _measured(self, spec: RunSpec, prepared: Prepared) -> dict[str, object]:
        """Return the dimensions of the source features and the model's scores on held-out source samples."""
        statistics = prepared.statistics(None)
        head = FeatureModel(prepared.model, HEADS[spec.source.model]).head
        correlation = weight_correlation(statistics, head.weight)
        held_out = self.data(spec.source).validation.to(self.tools.device)
        found = self._evaluated(Adapter(prepared.model, NoAdaptation()), held_out, spec, BATCH)
        return {
            "rank": statistics.rank,
            "valid": statistics.valid_dimensions,
            "correlation": correlation if correlation == correlation else None,  # noqa: PLR0124 - JSON has no NaN
            "validation": found["scores"]["offline"],  # type: ignore[index]
        }


def needs_statistics(spec: RunSpec) -> bool:
    """Return True if a run uses the source statistics; TTT needs none, as its branch is stored with the model."""
    if spec.arm is None:
        return True
    return spec.arm.method.needs_source or gathers_more(spec.arm.method)


def _gathered(spec: RunSpec) -> Method | None:
    """Return the run's method if it needs extended statistics; None if the moments suffice."""
    return spec.arm.method if spec.arm is not None and gathers_more(spec.arm.method) else None


def gathers_more(method: Method) -> bool:
    """Return True if a method needs source statistics beyond the moments."""
    return not isinstance(method, TTT) and bool(method.statistics_collectors())


def quiet() -> AbstractContextManager[None]:
    """Suppress warnings that recur in every run (the oracle sees labels, k is clipped); the tables state them once."""
    return hushed(*_SAID_BY_TABLES)
