"""The study itself: every method on every stream, from the same source models.

Everything random about a source model (its digits, its first weights, the order of its batches, the
noise on its target) comes from its own seed: more source models add to the results of fewer.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.collecting import collect
from regtta.experiments.demo.data import Digits, split, uci_digits
from regtta.experiments.demo.recipe import CLEAN, Arm, Recipe
from regtta.experiments.demo.seeds import generator
from regtta.experiments.demo.training import train
from regtta.metrics import RegressionMetrics, Scores
from regtta.statistics import SourceStatistics
from regtta.steps import Step

PROTOCOLS = ("offline", "online")
_PREDICT_BATCH = 256


@dataclass(frozen=True, eq=False)
class SourceModel:
    """A trained model with the statistics of its source, and the clean digits it will meet."""

    seed: int
    model: nn.Module
    statistics: SourceStatistics
    target: Digits


@dataclass(frozen=True)
class Run:
    """One method on one stream from one source model.

    Attributes:
        seed: of the source model.
        scene: name of the stream.
        arm: name of the method.
        scores: by protocol. Offline: one pass of adapting, then predictions on the same digits in
            eval mode. Online: the predictions made during that pass.
        learned: how many batches were learned from.
        refused: how many were not, by reason.
        diverged: what was not finite; empty if all was.
    """

    seed: int
    scene: str
    arm: str
    scores: Mapping[str, Scores]
    learned: int
    refused: Mapping[str, int]
    diverged: str = ""


def make_source(recipe: Recipe, seed: int, *, advance: Callable[[], None] | None = None) -> SourceModel:
    """Part the digits, train on the source's, and gather their statistics."""
    parts = split(uci_digits(), seed, source=recipe.source_digits, target=recipe.target_digits)
    model = train(parts.source, seed, recipe.training, advance=advance)
    statistics = collect(model, torch.split(parts.source.images, _PREDICT_BATCH), head="head")
    return SourceModel(seed, model, statistics, parts.target)


def run_scenes(recipe: Recipe, source: SourceModel) -> Iterator[Run]:
    """Every method on every stream, each from the source model as trained."""
    for scene in recipe.scenes:
        stream = Digits(scene_images(recipe, scene, source), source.target.labels)
        for arm in recipe.arms:
            yield run_arm(arm, source, stream, scene=scene, batch_size=recipe.batch_size)


def scene_images(recipe: Recipe, scene: str, source: SourceModel) -> Tensor:
    """The target's images (N, 1, 32, 32) as the scanner of ``scene`` gives them."""
    if scene == CLEAN:
        return source.target.images
    return recipe.degradations[scene].apply(source.target.images, generator(source.seed, scene))


def run_arm(arm: Arm, source: SourceModel, stream: Digits, *, scene: str, batch_size: int) -> Run:
    """Adapt over ``stream`` once, then predict on it, and score both."""
    adapter = Adapter(source.model, arm.method, source.statistics)
    steps = list(adapter.run(torch.split(stream.images, batch_size)))
    predictions = {
        "offline": torch.cat([adapter.predict(images) for images in torch.split(stream.images, _PREDICT_BATCH)]),
        "online": torch.cat([step.predictions for step in steps]),
    }
    verdicts = [step.diagnostics.verdict for step in steps]
    return Run(
        seed=source.seed,
        scene=scene,
        arm=arm.name,
        scores={protocol: _scores(predictions[protocol], stream.labels) for protocol in PROTOCOLS},
        learned=sum(verdict.learned for verdict in verdicts),
        refused=dict(Counter(verdict.reason for verdict in verdicts if not verdict.learned)),
        diverged=what_diverged(steps, predictions, adapter.export()),
    )


def what_diverged(steps: Sequence[Step], predictions: Mapping[str, Tensor], model: nn.Module) -> str:
    """Names what is not finite among losses, gradients, weights and predictions; empty if all is.

    The adapter refuses a step whose loss or gradient is not finite. Such a run still counts as
    diverged: it would be lost without the guard.
    """
    losses = [step.diagnostics.loss for step in steps]
    gradients = [step.diagnostics.gradient_norm for step in steps]
    weights = [value for value in model.state_dict().values() if value.is_floating_point()]
    finite = {
        "loss": all(math.isfinite(loss) for loss in losses if loss is not None),
        "gradient": all(math.isfinite(norm) for norm in gradients if norm is not None),
        "weights": all(bool(value.isfinite().all()) for value in weights),
        "predictions": all(bool(values.isfinite().all()) for values in predictions.values()),
    }
    return ", ".join(name for name, fine in finite.items() if not fine)


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


def _scores(predictions: Tensor, labels: Tensor) -> Scores:
    metrics = RegressionMetrics()
    metrics.update(predictions, labels)
    return metrics.compute()
