"""A tiny sweep of California, and a listener that records its calls."""

import dataclasses
import json
from pathlib import Path

from helpers.published_datasets import write_california
from regtta_bench.data.loading import DataLocation
from regtta_bench.paper.experiments import get_experiment
from regtta_bench.sweep.run_specs import QUICK_SCALE, SweepPlan
from regtta_bench.sweep.runner import RunnerConfig

TRAININGS = [("california-mlp-regression-0", 1, 1), ("california-mlp-regression-1", 1, 1)]


class RecordingListener:
    """Listener that records its calls, and raises KeyboardInterrupt after ``stop_after`` runs."""

    def __init__(self, stop_after=None):
        self.stop_after, self.completed, self.counts, self.trained = stop_after, [], None, []

    def on_start(self, runs, found):
        self.counts = (runs, found)

    def on_training(self, name, done, total):
        self.trained.append((name, done, total))

    def on_run(self, spec, result):
        self.completed.append(spec)
        if len(self.completed) == self.stop_after:
            raise KeyboardInterrupt


def make_runner_config(folder: Path) -> RunnerConfig:
    """Return a configuration with toy data and source models inside ``folder``."""
    data = folder / "data"
    data.mkdir()
    write_california(data, rows=120)
    return RunnerConfig(DataLocation(data), folder / "models")


def with_empty_models_folder(config: RunnerConfig) -> RunnerConfig:
    """Return ``config`` with a new folder of source models."""
    return dataclasses.replace(config, models=config.models.parent / "others")


def make_specs(sources=2, seeds=1):
    """Return the runs of the first table of California, scaled down."""
    return SweepPlan(source_seeds=sources, seeds=seeds, scale=QUICK_SCALE).all_runs(
        get_experiment("california").table_specs({})[:1]
    )


def read_results(path: Path):
    """Return the results in a store by key; check that no run occurs twice."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {line["key"]: line["result"] for line in lines}
    assert len(found) == len(lines)
    return found
