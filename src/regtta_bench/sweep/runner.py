"""Worker for the paper's runs in one process: loads data, trains source models, collects statistics and adapts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from regtta_bench.paper import GUARD_PRESETS, MethodConfig, evaluate
from regtta_bench.sweep.data_views import FORWARD_BATCH_SIZE, InputBatches, first_rows, prepare_data
from regtta_bench.sweep.interfaces import ProgressCallback
from regtta_bench.sweep.log_levels import suppress_recurring_warnings
from regtta_bench.sweep.run_specs import RunSpec, weights_digest
from regtta_bench.sweep.source_models import SourceModelCache, SourceSpec
from regtta_bench.sweep.store import compute_key
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

MOMENTS = "moments"  # file name suffix of statistics that hold the moments only


@dataclass(frozen=True)
class RunnerConfig:
    """Configuration of a :class:`Runner`; picklable, and valid on machines where its paths have the same content.

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

    def with_models_folder(self, models: Path) -> "RunnerConfig":
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
            if file is not None and weights_digest(file) != source.start:
                raise FileError(
                    f"{file} holds other weights than the file that the sweep was started with. Put the same file "
                    "there."
                )

    def make_worker(self, progress: ProgressCallback) -> "Runner":
        """Create a runner with this configuration."""
        return Runner(self, progress)


@dataclass(frozen=True, eq=False)
class PreparedSource:
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


class Runner:
    """Worker that trains source models and executes runs; caches the data, model and target of the last run.

    Args:
        config: configuration.
        progress: callback on training progress: name of the model, epochs done, epochs in total.
    """

    def __init__(self, config: RunnerConfig, progress: ProgressCallback | None = None) -> None:
        self.config = config
        self._progress = progress or (lambda *_: None)
        self._models = SourceModelCache(config.models)
        self._loaded: tuple[object, LoadedDataset] | None = None
        self._prepared: tuple[SourceSpec, PreparedSource] | None = None
        self._target: tuple[object, Domain] | None = None

    def run(self, spec: RunSpec) -> dict[str, object]:
        """Execute a run and return its JSON-serialisable result."""
        with suppress_recurring_warnings():
            prepared = self.load_source(spec.source)
            found = (
                self._measure_source(spec, prepared)
                if spec.method_config is None
                else self._adapt(spec, spec.method_config, prepared)
            )
        return found | {
            "source_fingerprint": prepared.fingerprint,
            "versions": software_versions(),
            "device": device_name(self.config.device),
        }

    def load_source(self, spec: SourceSpec) -> PreparedSource:
        """Return the source model of ``spec`` with its statistics: loaded if stored, else trained."""
        if self._prepared is None or self._prepared[0] != spec:
            self._prepared = (spec, self._load_or_train(spec))
        return self._prepared[1]

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        """Train the source model that all of the runs share, and collect the statistics that their methods need."""
        if not specs:
            return
        prepared = self.load_source(specs[0].source)
        needed = {_statistics_method(spec): None for spec in specs if needs_statistics(spec)}
        # Extended statistics first: they also serve the methods that need the moments only.
        for method in sorted(needed, key=lambda method: method is None):
            prepared.statistics(method)

    # --- source models ---------------------------------------------------------------------------

    def _load_or_train(self, spec: SourceSpec) -> PreparedSource:
        data = self.data(spec)
        model = self._new_model(spec, data).to(self.config.device)
        objective = self._objective(spec, model, data)
        parts = {"model": model} | {str(i): m.to(self.config.device) for i, m in enumerate(objective.modules)}
        self._models.load_or_train(
            spec,
            parts,
            lambda: self._train(spec, model, data, objective),
        )
        branch = objective.branch if isinstance(objective, RotationObjective) else None
        return PreparedSource(
            model, branch, cache(lambda method: self._statistics(spec, model, method)), fingerprint(model)
        )

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
        weights = self.config.weights.get(spec.model)
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
        target = data.target(spec.against).inputs.to(self.config.device)
        return AdversarialObjective(head, width, target, recipe=spec.recipe, seed=spec.seed)

    def _statistics(self, spec: SourceSpec, model: nn.Module, method: Method | None) -> SourceStatistics:
        methods = () if method is None or not needs_extended_statistics(method) else (method,)
        suffix = compute_key({"gathers": [to_dict(method) for method in methods]}) if methods else MOMENTS
        path = self._models.statistics_path(spec, suffix)
        if not methods and not path.exists():
            # Extended statistics hold the same moments.
            path = next(iter(sorted(path.parent.glob(path.name.replace(MOMENTS, "*")))), path)
        if path.exists():
            return SourceStatistics.load(path)
        batches = InputBatches(self.data(spec).train.inputs, spec, self.config.device)
        statistics = collect(model, batches, head=HEADS[spec.model], methods=methods)
        statistics.save(path, overwrite=True)
        return statistics

    # --- data ------------------------------------------------------------------------------------

    def data(self, spec: SourceSpec) -> LoadedDataset:
        """Return the data for a model of ``spec``: limited to its rows, with class labels for a classifier."""
        key = (spec.data, spec.variant, spec.seed, spec.rows, spec.task)
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None  # free the memory first: two data sets may not fit
            data = LOADERS[spec.data](self.config.place, spec.variant, spec.seed)
            self._loaded = (key, prepare_data(data, spec))
        return self._loaded[1]

    def _load_target(self, spec: RunSpec) -> Domain:
        """Return the target domain on the device, permuted by the run's seed."""
        source = spec.source
        key = (source.data, source.variant, source.seed, source.task, source.rows, spec.target, spec.target_rows)
        if self._target is None or self._target[0] != key:
            target = first_rows(self.data(source).target(spec.target), spec.target_rows)
            self._target = (key, target.to(self.config.device))
        target = self._target[1]
        order = torch.randperm(len(target), generator=torch.Generator().manual_seed(spec.seed))
        return target.take(order.to(target.inputs.device))

    # --- runs ------------------------------------------------------------------------------------

    def _adapt(self, spec: RunSpec, method_config: MethodConfig, prepared: PreparedSource) -> dict[str, object]:
        method = method_config.method
        if isinstance(method, TTT):
            method = replace(method, branch=prepared.branch)
        adapter = Adapter(
            prepared.model,
            method,
            prepared.statistics(method) if needs_statistics(spec) else None,
            head=HEADS[spec.source.model],
            guards=GUARD_PRESETS[method_config.guards],
        )
        return self._evaluate(adapter, self._load_target(spec), spec, method_config.batch_size)

    def _evaluate(self, adapter: Adapter, domain: Domain, spec: RunSpec, size: int) -> dict[str, object]:
        recipe, task = spec.source.recipe, spec.source.task
        outcome = evaluate(
            adapter, domain, batch_size=size, task=task, view=lambda inputs: eval_transform(inputs, recipe)
        )
        return outcome.to_dict()

    def _measure_source(self, spec: RunSpec, prepared: PreparedSource) -> dict[str, object]:
        """Return the dimensions of the source features and the model's scores on held-out source samples."""
        statistics = prepared.statistics(None)
        head = FeatureModel(prepared.model, HEADS[spec.source.model]).head
        correlation = weight_correlation(statistics, head.weight)
        held_out = self.data(spec.source).validation.to(self.config.device)
        found = self._evaluate(Adapter(prepared.model, NoAdaptation()), held_out, spec, FORWARD_BATCH_SIZE)
        return {
            "rank": statistics.rank,
            "valid": statistics.valid_dimensions,
            "correlation": correlation if correlation == correlation else None,  # noqa: PLR0124 - JSON has no NaN
            "validation": found["scores"]["offline"],  # type: ignore[index]
        }


def needs_statistics(spec: RunSpec) -> bool:
    """Return True if a run uses the source statistics; TTT needs none, as its branch is stored with the model."""
    if spec.method_config is None or spec.method_config.guards != "default":
        return True
    return spec.method_config.method.needs_source or needs_extended_statistics(spec.method_config.method)


def _statistics_method(spec: RunSpec) -> Method | None:
    """Return the run's method if it needs extended statistics; None if the moments suffice."""
    return (
        spec.method_config.method
        if spec.method_config is not None and needs_extended_statistics(spec.method_config.method)
        else None
    )


def needs_extended_statistics(method: Method) -> bool:
    """Return True if a method needs source statistics beyond the moments."""
    return not isinstance(method, TTT) and bool(method.statistics_collectors())
