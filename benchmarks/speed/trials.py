"""Source models with labelled streams for adaptation: the demo's digits, or the paper's data if available."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from benchmarks.speed.bench import Bench
from regtta.methods import SSA, Method
from regtta.statistics import SourceStatistics
from regtta_bench.data import DataLocation, Domain, check_available
from regtta_bench.demo.demo_model import DigitTraining
from regtta_bench.demo.demo_recipe import DemoRecipe
from regtta_bench.demo.demo_study import make_source, scene_images
from regtta_bench.paper import SETTINGS, make_method_config
from regtta_bench.sweep.run_specs import FULL_SCALE, QUICK_SCALE, SweepPlan
from regtta_bench.sweep.runner import Runner, RunnerConfig
from regtta_bench.training import HEADS, eval_transform

DEMO = "demo"
REAL = ("svhn-subset", "california")
SCENE = "darkened"
# The case with the speed of such steps, and True if its model takes images.
STEPS: Mapping[str, tuple[str, bool]] = MappingProxyType(
    {DEMO: ("step/digits", True), "svhn-subset": ("step/resnet26", True), "california": ("step/mlp", False)}
)


@dataclass(frozen=True, eq=False)
class Trial:
    """Source model and labelled stream.

    Attributes:
        model: source model on its device.
        statistics: source statistics of the model.
        head: name of the head.
        method: adaptation method.
        target: samples in the order of the stream, on the same device.
        batch: batch size.
        view: conversion of the target's inputs to those of the model.
    """

    model: nn.Module
    statistics: SourceStatistics
    head: str
    method: Method
    target: Domain
    batch: int
    view: Callable[[Tensor], Tensor]


def title_of_setting(name: str) -> str:
    """Return the title of a setting."""
    return f"digits, {SCENE}" if name == DEMO else SETTINGS[name].title


def trials(name: str, bench: Bench) -> Iterator[Trial]:
    """Return one trial per source model of the setting ``name``."""
    return digits(bench) if name == DEMO else published(name, bench)


def digits(bench: Bench) -> Iterator[Trial]:
    """Yield trials of newly trained networks of the demo on its darkened digits."""
    recipe = DemoRecipe(training=DigitTraining(epochs=15))
    if bench.quick:
        recipe = DemoRecipe(source_digits=200, target_digits=128, training=DigitTraining(epochs=1))
    for seed in range(2 if bench.quick else bench.sources):
        source = make_source(recipe, seed)
        target = Domain(scene_images(recipe, SCENE, source), source.target.targets)
        yield Trial(
            source.model.to(bench.device),
            source.statistics,
            "head",
            SSA(),
            target.to(bench.device),
            recipe.batch_size,
            lambda inputs: inputs,
        )


def published(name: str, bench: Bench) -> Iterator[Trial]:
    """Yield trials of one of the paper's settings; missing source models are trained and saved."""
    setting = SETTINGS[name]
    place = DataLocation(bench.require_data(name))
    check_available(setting.data, place)
    plan = SweepPlan(scale=QUICK_SCALE if bench.quick else FULL_SCALE)
    recipe, arm = (
        plan.scale.scale_recipe(setting.recipe),
        plan.scale.scale_method_config(make_method_config(setting, "ssa")),
    )
    (part,) = setting.parts.values()
    workshop = Runner(RunnerConfig(place, bench.model_folder, str(bench.device)))
    for seed in range(2 if bench.quick else bench.sources):
        spec = plan.source_spec(setting, part, "regression", seed)
        prepared = workshop.load_source(spec)
        target = workshop.data(spec).target(part.target)
        order = torch.randperm(len(target), generator=torch.Generator().manual_seed(0))
        target = target.take(order[: plan.scale.target_rows or None])
        yield Trial(
            prepared.model,
            prepared.statistics(None),
            HEADS[setting.model],
            arm.method,
            target.to(bench.device),
            arm.batch_size,
            lambda inputs: eval_transform(inputs, recipe),
        )
