"""Where the work is done: data, source models and their statistics, and runs on them, in one process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch
from torch import nn

from regtta.adapter import Adapter
from regtta.collecting import collect
from regtta.errors import FileError
from regtta.experiments.analysis import weight_correlation
from regtta.experiments.datasets import Domain
from regtta.experiments.datasets.discretising import BINS
from regtta.experiments.environment import device_name, versions
from regtta.experiments.hushing import hushed
from regtta.experiments.models import HEADS, model_of
from regtta.experiments.protocol import evaluate
from regtta.experiments.reproduce.arms import Arm
from regtta.experiments.reproduce.loading import LOADERS, Loaded, Place, check_there
from regtta.experiments.reproduce.roles import Told
from regtta.experiments.reproduce.showing import BATCH, InBatches, cut, shown
from regtta.experiments.reproduce.specs import RunSpec, mark_of
from regtta.experiments.sources import SourceModels, SourceSpec
from regtta.experiments.store import key_of
from regtta.experiments.training import Checkpoint, Classification, Objective, Regression, plain_view, train
from regtta.experiments.training.dann import AdversarialObjective
from regtta.experiments.training.rotation import RotationObjective
from regtta.experiments.training.seeding import seeded
from regtta.features import FeatureModel
from regtta.methods import TTT, Method, Source
from regtta.options import described
from regtta.statistics import SourceStatistics, fingerprint

_SAID_BY_TABLES = ("regtta.methods", "regtta.statistics", "regtta.experiments.models")
MOMENTS = "moments"  # the mark of statistics with nothing gathered beside them


@dataclass(frozen=True)
class Tools:
    """What a workshop works with; can be sent to another process, and to a machine where the paths lead to the same.

    Attributes:
        place: of the data.
        models: folder of source models.
        device: where to run.
        weights: files that models start from, by the name of the architecture.
    """

    place: Place
    models: Path
    device: str = "cpu"
    weights: Mapping[str, Path] = field(default_factory=dict)  # a mapping that can be sent to another process

    def at(self, models: Path) -> "Tools":
        """The same tools with another folder of source models."""
        return replace(self, models=models)

    def check(self, specs: Sequence[RunSpec]) -> None:
        """Raise if the data of the runs, or the weights that their models start from, are not on this machine."""
        self.check_sources(spec.source for spec in specs)

    def check_sources(self, sources: Iterable[SourceSpec]) -> None:
        """Raise if what source models are made from is not on this machine."""
        once = dict.fromkeys(sources)
        for data in dict.fromkeys(source.data for source in once):
            check_there(data, self.place)
        for source in once:
            file = self.weights.get(source.model)
            if file is not None and mark_of(file) != source.start:
                raise FileError(
                    f"{file} holds other weights than the file that the sweep was begun with. Put the same file there."
                )

    def worker(self, told: Told) -> "Workshop":
        """A workshop with these tools."""
        return Workshop(self, told)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A trained source model, on its device.

    Attributes:
        model: in eval mode.
        branch: TTT's, where the model was trained with one.
        statistics: gives those of its features, with what a method needs beyond the moments.
        fingerprint: of the model: two trainings of one specification may differ on a GPU.
    """

    model: nn.Module
    branch: nn.Linear | None
    statistics: Callable[[Method | None], SourceStatistics]
    fingerprint: str


class Workshop:
    """Makes source models and runs; keeps the data, the model and the target of the last run at hand.

    Args:
        tools: what it works with.
        told: told of the training: the name of the model, epochs done, and in all.
    """

    def __init__(self, tools: Tools, told: Told | None = None) -> None:
        self.tools = tools
        self._told = told or (lambda *_: None)
        self._models = SourceModels(tools.models)
        self._loaded: tuple[object, Loaded] | None = None
        self._prepared: tuple[SourceSpec, Prepared] | None = None
        self._target: tuple[object, Domain] | None = None

    def run(self, spec: RunSpec) -> dict[str, object]:
        """What came of a run, as JSON has it."""
        with quiet():
            prepared = self.prepare(spec.source)
            found = self._measured(spec, prepared) if spec.arm is None else self._adapted(spec, spec.arm, prepared)
        return found | {
            "source_fingerprint": prepared.fingerprint,
            "versions": versions(),
            "device": device_name(self.tools.device),
        }

    def prepare(self, spec: SourceSpec) -> Prepared:
        """The source model of ``spec`` and its statistics: found, or made."""
        if self._prepared is None or self._prepared[0] != spec:
            self._prepared = (spec, self._made(spec))
        return self._prepared[1]

    def ready(self, specs: Sequence[RunSpec]) -> None:
        """Train the source model of the runs, all of one, and collect what their methods need of it."""
        if not specs:
            return
        prepared = self.prepare(specs[0].source)
        needed = {_gathered(spec): None for spec in specs if needs_statistics(spec)}
        # Those with more than moments first: they serve who needs no more.
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

    def _train(self, spec: SourceSpec, model: nn.Module, data: Loaded, objective: Objective) -> None:
        train(
            model,
            data.train,
            spec.recipe,
            seed=spec.seed,
            objective=objective,
            advance=lambda done, total: self._told(spec.name, done, total),
            checkpoint=Checkpoint(self._models.checkpoint_path(spec)),
        )

    def _new_model(self, spec: SourceSpec, data: Loaded) -> nn.Module:
        outputs = BINS if spec.task == "classification" else data.train.targets.shape[1]
        weights = self.tools.weights.get(spec.model)
        return seeded(
            lambda: model_of(spec.model, outputs, inputs=data.train.inputs.shape[1], weights=weights), spec.seed
        )

    def _objective(self, spec: SourceSpec, model: nn.Module, data: Loaded) -> Objective:
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
        mark = key_of({"gathers": [described(method) for method in gathers]}) if gathers else MOMENTS
        path = self._models.statistics_path(spec, mark)
        if not gathers and not path.exists():
            # The moments are the same whatever was gathered with them.
            path = next(iter(sorted(path.parent.glob(path.name.replace(MOMENTS, "*")))), path)
        if path.exists():
            return SourceStatistics.load(path)
        batches = InBatches(self.data(spec).train.inputs, spec, self.tools.device)
        statistics = collect(model, batches, head=HEADS[spec.model], methods=gathers)
        statistics.save(path, overwrite=True)
        return statistics

    # --- data ------------------------------------------------------------------------------------

    def data(self, spec: SourceSpec) -> Loaded:
        """The data as a model of ``spec`` sees it: cut to its rows, its labels in classes for a classifier."""
        wanted = (spec.data, spec.variant, spec.seed, spec.rows, spec.task)
        if self._loaded is None or self._loaded[0] != wanted:
            self._loaded = None  # two data sets at once may be too much
            data = LOADERS[spec.data](self.tools.place, spec.variant, spec.seed)
            self._loaded = (wanted, shown(data, spec))
        return self._loaded[1]

    def _target_of(self, spec: RunSpec) -> Domain:
        """The target in the order of the run's seed, on the device."""
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
        outcome = evaluate(adapter, domain, batch_size=size, task=task, view=lambda inputs: plain_view(inputs, recipe))
        return outcome.plain()

    def _measured(self, spec: RunSpec, prepared: Prepared) -> dict[str, object]:
        """The dimensions of the features, and how good the model is on what it was held out from."""
        statistics = prepared.statistics(None)
        head = FeatureModel(prepared.model, HEADS[spec.source.model]).head
        correlation = weight_correlation(statistics, head.weight)
        held_out = self.data(spec.source).validation.to(self.tools.device)
        found = self._evaluated(Adapter(prepared.model, Source()), held_out, spec, BATCH)
        return {
            "rank": statistics.rank,
            "valid": statistics.valid_dimensions,
            "correlation": correlation if correlation == correlation else None,  # noqa: PLR0124 - NaN is no JSON
            "validation": found["scores"]["offline"],  # type: ignore[index]
        }


def needs_statistics(spec: RunSpec) -> bool:
    """Whether a run looks at the statistics of its source model; TTT's branch comes with the model."""
    if spec.arm is None:
        return True
    return spec.arm.method.needs_source or gathers_more(spec.arm.method)


def _gathered(spec: RunSpec) -> Method | None:
    """The method of a run for which to gather; None for the moments alone."""
    return spec.arm.method if spec.arm is not None and gathers_more(spec.arm.method) else None


def gathers_more(method: Method) -> bool:
    """Whether a method needs more of the source than its moments."""
    return not isinstance(method, TTT) and bool(method.gatherers())


def quiet() -> AbstractContextManager[None]:
    """What is warned of at every start (that the oracle sees labels, that k is cut) is said once by the tables."""
    return hushed(*_SAID_BY_TABLES)
