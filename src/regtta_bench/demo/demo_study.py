"""Runs of every method on every stream, from the same source models.

All randomness of a source model (its digits, its initial weights, its sample order, the noise on its target) derives
from its own seed, so that a run with more source models extends the results of one with fewer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.statistics import SourceStatistics, collect
from regtta_bench.data import Domain
from regtta_bench.demo.demo_data import make_generator, split_digits, uci_digits
from regtta_bench.demo.demo_model import train_digit_regressor
from regtta_bench.demo.demo_recipe import CLEAN, DemoMethod, DemoRecipe
from regtta_bench.paper import EvaluationResult, evaluate

_PREDICT_BATCH = 256


@dataclass(frozen=True, eq=False)
class SourceModel:
    """TrainingState model, with its source statistics and its clean target digits."""

    seed: int
    model: nn.Module
    statistics: SourceStatistics
    target: Domain


@dataclass(frozen=True)
class DemoRun:
    """One method on one stream from one source model.

    Attributes:
        seed: seed of the source model.
        scene: name of the stream.
        method_name: name of the method.
        outcome: result of the run.
    """

    seed: int
    scene: str
    method_name: str
    outcome: EvaluationResult


def make_source(recipe: DemoRecipe, seed: int, *, on_epoch: Callable[[], None] | None = None) -> SourceModel:
    """Split the digits, train on the source part, and collect its statistics."""
    parts = split_digits(uci_digits(), seed, source=recipe.source_digits, target=recipe.target_digits)
    model = train_digit_regressor(parts.source, seed, recipe.training, on_epoch=on_epoch)
    statistics = collect(model, torch.split(parts.source.inputs, _PREDICT_BATCH), head="head")
    return SourceModel(seed, model, statistics, parts.target)


def run_scenes(recipe: DemoRecipe, source: SourceModel) -> Iterator[DemoRun]:
    """Run every method on every stream, each from the unadapted source model."""
    for scene in recipe.scenes:
        stream = Domain(scene_images(recipe, scene, source), source.target.targets)
        for entry in recipe.methods:
            yield run_method(entry, source, stream, scene=scene, batch_size=recipe.batch_size)


def scene_images(recipe: DemoRecipe, scene: str, source: SourceModel) -> Tensor:
    """Return the target images ``(N, 1, 32, 32)`` with the degradation of ``scene``."""
    if scene == CLEAN:
        return source.target.inputs
    return recipe.degradations[scene].apply(source.target.inputs, make_generator(source.seed, scene))


def run_method(entry: DemoMethod, source: SourceModel, stream: Domain, *, scene: str, batch_size: int) -> DemoRun:
    """Adapt over ``stream`` once, then predict on it, and score both."""
    adapter = Adapter(source.model, entry.method, source.statistics)
    outcome = evaluate(adapter, stream, batch_size=batch_size)
    return DemoRun(source.seed, scene, entry.name, outcome)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread within the block, and restore the number of threads afterwards.

    The networks are too small to gain from more threads, synchronisation is slow on shared cores, and results do not
    depend on the number of cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
