"""Runner of the benchmark in one process: adapts a method with its guards over one stream and scores it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regtta.adapter import Adapter
from regtta.persistence import device_name, software_versions
from regtta.types import Step
from regtta_bench.demo.demo_data import make_generator
from regtta_bench.paper import compute_scores, find_nonfinite
from regtta_bench.stress.streams import Stream, draw_stream
from regtta_bench.stress.stress_settings import GUARDS, STRESS_SETTINGS, DigitsSource, StressSource
from regtta_bench.stress.stress_specs import StressSpec
from regtta_bench.stress.testbeds import StressTestbed, make_digits_testbed, make_paper_testbed
from regtta_bench.sweep.interfaces import ProgressCallback
from regtta_bench.sweep.log_levels import suppress_recurring_warnings
from regtta_bench.sweep.runner import Runner, RunnerConfig
from regtta_bench.sweep.source_models import SourceModelCache, SourceSpec

SLICES = 20


@dataclass(frozen=True)
class StressRunnerConfig:
    """Configuration of a :class:`StressRunner`; picklable.

    Attributes:
        config: configuration of the runner of ``regtta reproduce``.
    """

    config: RunnerConfig

    @property
    def device(self) -> str:
        """Device to run on."""
        return self.config.device

    @property
    def models(self) -> Path:
        """Folder of source models."""
        return self.config.models

    def with_models_folder(self, models: Path) -> "StressRunnerConfig":
        """Return a copy with another folder of source models."""
        return StressRunnerConfig(self.config.with_models_folder(models))

    def check(self, specs: Sequence[StressSpec]) -> None:
        """Raise if data that the runs need is missing on this machine; the demo's digits ship with scikit-learn."""
        self.config.check_sources(spec.source for spec in specs if isinstance(spec.source, SourceSpec))

    def make_worker(self, progress: ProgressCallback) -> "StressRunner":
        """Create a runner with this configuration."""
        return StressRunner(self.config, progress)


class StressRunner:
    """Worker that trains source models and executes runs; caches the model and samples of the last run.

    Args:
        config: configuration.
        progress: callback on training progress: name of the model, epochs done, epochs in total.
    """

    def __init__(self, config: RunnerConfig, progress: ProgressCallback) -> None:
        self._workshop = Runner(config, progress)
        self._tools, self._progress = config, progress
        self._testbed: tuple[StressSource, StressTestbed] | None = None

    def run(self, spec: StressSpec) -> dict[str, object]:
        """Execute a run and return its JSON-serialisable result."""
        with suppress_recurring_warnings():
            testbed = self._testbed_of(spec)
            adapter = Adapter(
                testbed.model,
                spec.method,
                testbed.statistics(spec.method),
                head=testbed.head,
                guards=GUARDS[spec.guards],
            )
            found = evaluate_stream(adapter, draw_run_stream(spec, testbed), testbed, batch_size=spec.batch_size)
        return found | {
            "source_fingerprint": testbed.fingerprint,
            "versions": software_versions(),
            "device": device_name(self._tools.device),
        }

    def prepare(self, specs: Sequence[StressSpec]) -> None:
        """Train the source model that all of the runs share, and collect the statistics that their methods need."""
        with suppress_recurring_warnings():
            # Extended statistics first: they also serve the methods that need the moments only.
            for spec in sorted(specs, key=lambda spec: not spec.method.statistics_collectors()):
                self._testbed_of(spec).statistics(spec.method)

    def _testbed_of(self, spec: StressSpec) -> StressTestbed:
        if self._testbed is None or self._testbed[0] != spec.source:
            self._testbed = None  # free the memory first: two may not fit
            self._testbed = (spec.source, self._make_testbed(spec))
        return self._testbed[1]

    def _make_testbed(self, spec: StressSpec) -> StressTestbed:
        if isinstance(spec.source, DigitsSource):
            return make_digits_testbed(
                spec.source, SourceModelCache(self._tools.models), self._tools.device, self._progress
            )
        return make_paper_testbed(spec.source, STRESS_SETTINGS[spec.setting].parts, self._workshop)


def draw_run_stream(spec: StressSpec, testbed: StressTestbed) -> Stream:
    """Draw the stream of a run, which is the same for all methods, guards and batch sizes."""
    drawn_by = make_generator(spec.source.seed, f"stress: {spec.target}")
    return draw_stream(spec.kind, testbed.pool, spec.part, spec.length, drawn_by)


def evaluate_stream(adapter: Adapter, stream: Stream, testbed: StressTestbed, *, batch_size: int) -> dict[str, object]:
    """Adapt over ``stream`` once; return the scores of its online predictions and counts of the guards' verdicts."""
    record = _adapt_over(adapter, stream, testbed.view, batch_size)
    targets = stream.targets
    unadapted = stream.gather([testbed.source_outputs(domain) for domain in stream.domains])
    return {
        "samples": len(stream),
        "r2": compute_scores(record.predictions, targets)["r2"],
        "source_r2": compute_scores(unadapted, targets)["r2"],
        "slices": slice_scores(record.predictions, targets),
        **record.counts(),
        "diverged": find_nonfinite(record.updates, {"online": record.predictions}, adapter),
    }


@dataclass(frozen=True, eq=False)
class _StreamRecord:
    """Record of one pass over a stream: predictions, counts of verdicts, and the steps with an update."""

    predictions: Tensor
    verdicts: Counter[str]
    returned: Counter[str]
    batches: int
    excluded: int
    first_learned: int | None
    updates: list[Step]

    def counts(self) -> dict[str, object]:
        """Return the JSON-serialisable counts; ``first_learned`` is counted from 1."""
        refused = {reason: count for reason, count in self.verdicts.items() if reason}
        return {
            "batches": self.batches,
            "learned": self.verdicts[""],
            "refused": refused,
            "returned": dict(self.returned),
            "excluded": self.excluded,
            "first_learned": self.first_learned,
        }


def _adapt_over(adapter: Adapter, stream: Stream, view: Callable[[Tensor], Tensor], batch_size: int) -> _StreamRecord:
    verdicts, returned = Counter[str](), Counter[str]()
    updates: list[Step] = []
    first, batches, excluded = None, 0, 0
    # Filled in place: keeping many small tensors would fragment memory, by gigabytes in a long stream.
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
            # Only losses that led to an update are checked for divergence; rejected ones did no harm.
            updates.append(step)
    return _StreamRecord(predictions, verdicts, returned, batches, excluded, first, updates)


def slice_scores(predictions: Tensor, targets: Tensor, slices: int = SLICES) -> list[float | None]:
    """Compute R² in equal slices of a stream, relative to the variance of all its labels so that slices compare.

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
