"""Runs of the benchmark in one process: a method with its guards over one stream, and what came of it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regtta.adapter import Adapter
from regtta.experiments.demo.seeds import generator
from regtta.experiments.environment import device_name, versions
from regtta.experiments.protocol import not_finite
from regtta.experiments.reproduce.roles import Told
from regtta.experiments.reproduce.workshop import Tools, Workshop, quiet
from regtta.experiments.scoring import scores_of
from regtta.experiments.sources import SourceModels, SourceSpec
from regtta.experiments.stress.arms import GUARDS
from regtta.experiments.stress.grounds import Ground, digits_ground, paper_ground
from regtta.experiments.stress.settings import SETTINGS, DigitsSource, StressSource
from regtta.experiments.stress.specs import StressSpec
from regtta.experiments.stress.streams import Stream, draw
from regtta.steps import Step

SLICES = 20


@dataclass(frozen=True)
class StressTools:
    """What the benchmark works with; can be sent to another process.

    Attributes:
        tools: those of ``regtta reproduce``.
    """

    tools: Tools

    @property
    def device(self) -> str:
        """Where to run."""
        return self.tools.device

    @property
    def models(self) -> Path:
        """The folder of source models."""
        return self.tools.models

    def at(self, models: Path) -> "StressTools":
        """The same tools with another folder of source models."""
        return StressTools(self.tools.at(models))

    def check(self, specs: Sequence[StressSpec]) -> None:
        """Raise if the data of the runs are not on this machine; the demo's digits are on every one."""
        self.tools.check_sources(spec.source for spec in specs if isinstance(spec.source, SourceSpec))

    def worker(self, told: Told) -> "StressWorkshop":
        """A workshop with these tools."""
        return StressWorkshop(self.tools, told)


class StressWorkshop:
    """Makes source models and runs; keeps the model and the samples of the last run at hand.

    Args:
        tools: what it works with.
        told: told of the training: the name of the model, epochs done, and in all.
    """

    def __init__(self, tools: Tools, told: Told) -> None:
        self._workshop = Workshop(tools, told)
        self._tools, self._told = tools, told
        self._ground: tuple[StressSource, Ground] | None = None

    def run(self, spec: StressSpec) -> dict[str, object]:
        """What came of a run, as JSON has it."""
        with quiet():
            ground = self._ground_of(spec)
            adapter = Adapter(
                ground.model,
                spec.method,
                ground.statistics(spec.method),
                head=ground.head,
                guards=GUARDS[spec.guards],
            )
            found = evaluated(adapter, stream_of(spec, ground), ground, batch_size=spec.batch_size)
        return found | {
            "source_fingerprint": ground.fingerprint,
            "versions": versions(),
            "device": device_name(self._tools.device),
        }

    def ready(self, specs: Sequence[StressSpec]) -> None:
        """Train the source model of the runs, all of one, and collect what their methods need of it."""
        with quiet():
            # Those with more than moments first: they serve who needs no more.
            for spec in sorted(specs, key=lambda spec: not spec.method.gatherers()):
                self._ground_of(spec).statistics(spec.method)

    def _ground_of(self, spec: StressSpec) -> Ground:
        if self._ground is None or self._ground[0] != spec.source:
            self._ground = None  # two at once may be too much
            self._ground = (spec.source, self._made(spec))
        return self._ground[1]

    def _made(self, spec: StressSpec) -> Ground:
        if isinstance(spec.source, DigitsSource):
            return digits_ground(spec.source, SourceModels(self._tools.models), self._tools.device, self._told)
        return paper_ground(spec.source, SETTINGS[spec.setting].parts, self._workshop)


def stream_of(spec: StressSpec, ground: Ground) -> Stream:
    """The stream of a run: the same for all methods, guards and batch sizes."""
    drawn_by = generator(spec.source.seed, f"stress: {spec.target}")
    return draw(spec.kind, ground.pool, spec.part, spec.length, drawn_by)


def evaluated(adapter: Adapter, stream: Stream, ground: Ground, *, batch_size: int) -> dict[str, object]:
    """Adapt over ``stream`` once, score the predictions on the way, and count what the guards did."""
    watched = _watched(adapter, stream, ground.view, batch_size)
    targets = stream.targets
    unadapted = stream.gathered([ground.source_outputs(domain) for domain in stream.domains])
    return {
        "samples": len(stream),
        "r2": scores_of(watched.predictions, targets)["r2"],
        "source_r2": scores_of(unadapted, targets)["r2"],
        "slices": slice_scores(watched.predictions, targets),
        **watched.counts(),
        "diverged": not_finite(watched.standing, {"online": watched.predictions}, adapter),
    }


@dataclass(frozen=True, eq=False)
class _Watched:
    """A stream gone through: what was predicted, what the verdicts were, and the steps that stand."""

    predictions: Tensor
    verdicts: Counter[str]
    returned: Counter[str]
    batches: int
    excluded: int
    first_learned: int | None
    standing: list[Step]

    def counts(self) -> dict[str, object]:
        """As JSON has it; the first batch learned from is counted from 1."""
        refused = {reason: count for reason, count in self.verdicts.items() if reason}
        return {
            "batches": self.batches,
            "learned": self.verdicts[""],
            "refused": refused,
            "returned": dict(self.returned),
            "excluded": self.excluded,
            "first_learned": self.first_learned,
        }


def _watched(adapter: Adapter, stream: Stream, view: Callable[[Tensor], Tensor], batch_size: int) -> _Watched:
    verdicts, returned = Counter[str](), Counter[str]()
    standing: list[Step] = []
    first, batches, excluded = None, 0, 0
    # Filled in place: small tensors kept between large ones would keep the memory of those, gigabytes in a long stream.
    predictions = torch.empty(stream.targets.reshape(len(stream), -1).shape)
    for inputs in stream.batches(batch_size):
        step = adapter.adapt(view(inputs))
        verdict = step.diagnostics.verdict
        predictions[batches * batch_size : (batches + 1) * batch_size] = step.predictions.detach().cpu()
        verdicts[verdict.reason if not verdict.learned else ""] += 1
        returned.update([verdict.returned] if verdict.returned else [])
        batches += 1
        excluded += len(step.excluded_rows)
        if verdict.learned:
            first = first or batches
            # A loss that was refused did no harm; one that was learned from is looked at.
            standing.append(step)
    return _Watched(predictions, verdicts, returned, batches, excluded, first, standing)


def slice_scores(predictions: Tensor, targets: Tensor, slices: int = SLICES) -> list[float | None]:
    """R² in equal slices of a stream, against the variance of all its labels, so that slices compare.

    ``1 − mean_slice (ŷ−y)² / mean (y−ȳ)²``, averaged over outputs; None where it is not finite.

    Example:
        >>> slice_scores(torch.tensor([0.0, 0.0, 2.0, 3.0]), torch.tensor([0.0, 1.0, 2.0, 3.0]), slices=2)
        [0.6, 1.0]
    """
    wanted = targets.reshape(len(targets), -1).double().cpu()
    errors = (predictions.reshape(wanted.shape).double().cpu() - wanted) ** 2
    spread = ((wanted - wanted.mean(dim=0)) ** 2).mean(dim=0)
    parts = [part for part in errors.tensor_split(slices) if len(part)]
    scores = [float((1 - part.mean(dim=0) / spread).mean()) for part in parts]
    return [round(score, 5) if math.isfinite(score) else None for score in scores]
