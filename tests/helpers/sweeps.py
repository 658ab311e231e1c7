"""A tiny sweep of California, and a listener that remembers what it is told."""

import dataclasses
import json
from pathlib import Path

from helpers.published_datasets import write_california
from regtta_bench.data.loading import Place
from regtta_bench.paper.experiments import get_experiment
from regtta_bench.sweep.run_specs import QUICK_SCALE, SweepPlan
from regtta_bench.sweep.runner import RunnerConfig

TRAININGS = [("california-mlp-regression-0", 1, 1), ("california-mlp-regression-1", 1, 1)]


class Remembering:
    """Keeps all it is told, and presses Control-C after so many runs."""

    def __init__(self, stop_after=None):
        self.stop_after, self.made, self.told, self.trained = stop_after, [], None, []

    def on_start(self, runs, found):
        self.told = (runs, found)

    def on_training(self, name, done, total):
        self.trained.append((name, done, total))

    def on_run(self, spec, result):
        self.made.append(spec)
        if len(self.made) == self.stop_after:
            raise KeyboardInterrupt


def tools_in(folder: Path) -> RunnerConfig:
    """Tools with toy data, both inside ``folder``."""
    data = folder / "data"
    data.mkdir()
    write_california(data, rows=120)
    return RunnerConfig(Place(data), folder / "models")


def with_other_models(config: RunnerConfig) -> RunnerConfig:
    """The same, with no source models yet."""
    return dataclasses.replace(config, models=config.models.parent / "others")


def specs(sources=2, seeds=1):
    return SweepPlan(source_seeds=sources, seeds=seeds, scale=QUICK_SCALE).all_runs(
        get_experiment("california").table_specs({})[:1]
    )


def results(path: Path):
    """What the lines of a store say, by key; no run may be there twice."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {line["key"]: line["result"] for line in lines}
    assert len(found) == len(lines)
    return found
