"""The study itself: every method on every stream, from the same source models.

Everything random about a source model (its digits, its first weights, the order of its batches, the
noise on its target) comes from its own seed: more source models add to the results of fewer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.collecting import collect
from regtta.experiments.datasets import Domain
from regtta.experiments.demo.data import split, uci_digits
from regtta.experiments.demo.recipe import CLEAN, Arm, Recipe
from regtta.experiments.demo.seeds import generator
from regtta.experiments.demo.training import train
from regtta.experiments.protocol import Outcome, evaluate
from regtta.statistics import SourceStatistics

_PREDICT_BATCH = 256


@dataclass(frozen=True, eq=False)
class SourceModel:
    """A trained model with the statistics of its source, and the clean digits it will meet."""

    seed: int
    model: nn.Module
    statistics: SourceStatistics
    target: Domain


@dataclass(frozen=True)
class Run:
    """One method on one stream from one source model.

    Attributes:
        seed: of the source model.
        scene: name of the stream.
        arm: name of the method.
        outcome: what came of it.
    """

    seed: int
    scene: str
    arm: str
    outcome: Outcome


def make_source(recipe: Recipe, seed: int, *, advance: Callable[[], None] | None = None) -> SourceModel:
    """Part the digits, train on the source's, and gather their statistics."""
    parts = split(uci_digits(), seed, source=recipe.source_digits, target=recipe.target_digits)
    model = train(parts.source, seed, recipe.training, advance=advance)
    statistics = collect(model, torch.split(parts.source.inputs, _PREDICT_BATCH), head="head")
    return SourceModel(seed, model, statistics, parts.target)


def run_scenes(recipe: Recipe, source: SourceModel) -> Iterator[Run]:
    """Every method on every stream, each from the source model as trained."""
    for scene in recipe.scenes:
        stream = Domain(scene_images(recipe, scene, source), source.target.targets)
        for arm in recipe.arms:
            yield run_arm(arm, source, stream, scene=scene, batch_size=recipe.batch_size)


def scene_images(recipe: Recipe, scene: str, source: SourceModel) -> Tensor:
    """The target's images (N, 1, 32, 32) as the scanner of ``scene`` gives them."""
    if scene == CLEAN:
        return source.target.inputs
    return recipe.degradations[scene].apply(source.target.inputs, generator(source.seed, scene))


def run_arm(arm: Arm, source: SourceModel, stream: Domain, *, scene: str, batch_size: int) -> Run:
    """Adapt over ``stream`` once, then predict on it, and score both."""
    adapter = Adapter(source.model, arm.method, source.statistics)
    outcome = evaluate(adapter, stream, batch_size=batch_size)
    return Run(source.seed, scene, arm.name, outcome)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread within, and on as many as before after.

    The networks are too small to gain from more, threads that wait for each other lose much where
    cores are shared, and the sums come out the same however many cores there are.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
