"""Testbeds of the label-shift study: source models with shifts of their inputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own alias
from torch import Tensor, nn

from regtta.models import fingerprint
from regtta.statistics import SourceStatistics
from regtta_bench.data import LOADERS, DataLocation, Domain, check_available, resolve_data_folder
from regtta_bench.demo.demo_data import Blur, Brighten, Contrast, Darken, Degradation, Noise, split_digits, uci_digits
from regtta_bench.demo.demo_recipe import DemoRecipe
from regtta_bench.demo.demo_study import make_source
from regtta_bench.paper import SETTINGS
from regtta_bench.sweep.interfaces import ProgressCallback
from regtta_bench.sweep.runner import Runner, RunnerConfig
from regtta_bench.sweep.source_models import SourceSpec

InputChange = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class InputShift:
    """One input shift at one severity.

    Attributes:
        name: name of the shift with its severity.
        level: index of the severity, from 0, the mildest.
        apply: function from inputs and a generator to the shifted inputs.
    """

    name: str
    level: int
    apply: InputChange


def digit_shifts() -> tuple[InputShift, ...]:
    """Return shifts of digits ``(N, 1, H, W)`` in [0, 1]: the demo's degradations, translation, gamma, occlusion."""
    degradations: Mapping[str, Sequence[Degradation]] = {
        "darkened": [Darken(factor) for factor in (0.9, 0.75, 0.5, 0.25)],
        "brightened": [Brighten(offset) for offset in (0.05, 0.15, 0.3, 0.5)],
        "blurred": [Blur(sigma) for sigma in (0.5, 1.0, 2.0, 3.0)],
        "noisy": [Noise(sd) for sd in (0.05, 0.1, 0.2, 0.3)],
        "contrast": [Contrast(factor) for factor in (0.85, 0.6, 0.3, 0.15)],
    }
    made = [
        InputShift(f"{name} {kind.setting}", level, kind.apply)
        for name, kinds in degradations.items()
        for level, kind in enumerate(kinds)
    ]
    made += _levels("moved right, px", (1, 2, 4, 6), _move_right)
    made += _levels("gamma", (0.8, 1.5, 0.6, 2.5), lambda images, strength, _: images**strength)
    return (*made, *_levels("corner covered, px", (4, 8, 12, 16), _cover_corner))


def table_shifts(columns: int) -> tuple[InputShift, ...]:
    """Return shifts of standardised tables ``(N, C)``: offset, scale, noise, dropped columns and missing values."""
    made = []
    for column in range(columns):
        one = F.one_hot(torch.tensor(column), columns).float()
        name = f"column {column}"
        made += _levels(f"{name} offset, sd", (0.25, 0.5, 1.0, 2.0), lambda x, size, _, one=one: x + size * one)
        made += _levels(f"{name} scaled", (0.7, 1.5, 3.0), lambda x, size, _, one=one: x * (1 + (size - 1) * one))
        made += _levels(f"{name} noise, sd", (0.5, 2.0), lambda x, size, g, one=one: x + size * _normal(x, g) * one)
        made += _levels(f"{name} imputed by the mean", (1,), lambda x, _, __, one=one: x * (1 - one))
    made += _levels("all offset, sd", (0.1, 0.25, 0.5, 1.0), lambda x, size, _: x + size)
    made += _levels("all scaled", (0.8, 1.25, 0.5, 2.0), lambda x, size, _: x * size)
    made += _levels("all noise, sd", (0.1, 0.25, 0.5, 1.0), lambda x, size, g: x + size * _normal(x, g))
    return (*made, *_levels("share missing, imputed by the mean", (0.1, 0.3, 0.6), _impute_missing))


def _levels(name: str, strengths: Sequence[float], change: Callable[..., Tensor]) -> list[InputShift]:
    def at(strength: float) -> InputChange:
        return lambda inputs, generator: change(inputs, strength, generator)

    return [InputShift(f"{name} {strength:g}", level, at(strength)) for level, strength in enumerate(strengths)]


def _move_right(images: Tensor, pixels: int, _: torch.Generator) -> Tensor:
    return F.pad(images, (pixels, 0))[..., : images.shape[-1]]


def _cover_corner(images: Tensor, pixels: int, _: torch.Generator) -> Tensor:
    images = images.clone()
    images[..., :pixels, :pixels] = 0
    return images


def _normal(inputs: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(inputs.shape, generator=generator)


def _impute_missing(inputs: Tensor, share: float, generator: torch.Generator) -> Tensor:
    return inputs * (torch.rand(inputs.shape, generator=generator) >= share)


DATASET_NAMES = ("demo", "california")


@dataclass(frozen=True, eq=False)
class LabelShiftTestbed:
    """One source model with its data.

    Attributes:
        data: name of the data set.
        seed: seed of the source model.
        model: trained model, in eval mode.
        statistics: statistics of its features on the training data.
        train: training data; labels ``(N, 1)``.
        held_out: source samples not trained on; labels ``(N, 1)``.
        shifts: shifts of its inputs.
        k: number of directions that SSA aligns.
        batch_size: batch size of streams to adapt to.
        classes: True if labels are a few discrete values.
        target: real target, for evaluation only; None if all shifts are constructed.
    """

    data: str
    seed: int
    model: nn.Module
    statistics: SourceStatistics
    train: Domain
    held_out: Domain
    shifts: tuple[InputShift, ...]
    k: int
    batch_size: int
    classes: bool = False
    target: Domain | None = None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model."""
        return fingerprint(self.model)

    def standardised(self, domain: Domain) -> Tensor:
        """Return the labels of ``domain`` standardised by the training labels, ``(N,)`` in float64."""
        labels = self.train.targets[:, 0].double()
        return (domain.targets[:, 0].double() - labels.mean()) / labels.std()


def make_demo_testbed(
    seed: int, recipe: DemoRecipe | None = None, progress: ProgressCallback | None = None
) -> LabelShiftTestbed:
    """Return a source model of the demo, with its undegraded target digits as held-out samples."""
    recipe = recipe or DemoRecipe()
    done = [0]

    def on_epoch() -> None:
        done[0] += 1
        if progress:
            progress(f"demo-{seed}", done[0], recipe.training.epochs)

    source = make_source(recipe, seed, on_epoch=on_epoch)
    parts = split_digits(uci_digits(), seed, source=recipe.source_digits, target=recipe.target_digits)
    train, held_out = (Domain(part.inputs, part.targets[:, None]) for part in (parts.source, parts.target))
    return LabelShiftTestbed(
        "demo",
        seed,
        source.model,
        source.statistics,
        train,
        held_out,
        digit_shifts(),
        k=100,
        batch_size=recipe.batch_size,
        classes=True,
    )


def make_california_testbed(
    seed: int, *, data: Path | None, models: Path, progress: ProgressCallback | None = None
) -> LabelShiftTestbed:
    """Return a source model of California Housing, trained as by ``regtta reproduce california``."""
    setting = SETTINGS["california"]
    place = DataLocation(resolve_data_folder(data))
    check_available(setting.data, place)
    runner = Runner(RunnerConfig(place, models), progress)
    prepared = runner.load_source(SourceSpec(setting.data, setting.model, "regression", setting.recipe, seed))
    loaded = LOADERS[setting.data](place, "", seed)
    return LabelShiftTestbed(
        "california",
        seed,
        prepared.model,
        prepared.statistics(None),
        loaded.train,
        loaded.validation,
        table_shifts(loaded.train.inputs.shape[1]),
        k=setting.k,
        batch_size=64,
        target=loaded.target(""),
    )
