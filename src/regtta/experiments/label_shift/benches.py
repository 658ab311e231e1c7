"""Basis of constructed shifts: a trained source model, its statistics, and held-out source samples."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from regtta.experiments.datasets import Domain, data_folder
from regtta.experiments.demo.data import split, uci_digits
from regtta.experiments.demo.recipe import Recipe
from regtta.experiments.demo.study import make_source
from regtta.experiments.label_shift.input_shifts import InputShift, digit_shifts, table_shifts
from regtta.experiments.reproduce.loading import LOADERS, Place, check_there
from regtta.experiments.reproduce.settings import SETTINGS
from regtta.experiments.reproduce.workshop import Tools, Workshop
from regtta.experiments.sources import SourceSpec
from regtta.statistics import SourceStatistics, fingerprint

Told = Callable[[str, int, int], None]

DATA = ("demo", "california")


@dataclass(frozen=True, eq=False)
class Bench:
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


def demo_bench(seed: int, recipe: Recipe | None = None, told: Told | None = None) -> Bench:
    """Return a source model of the demo, with its undegraded target digits as held-out samples."""
    recipe = recipe or Recipe()
    done = [0]

    def advance() -> None:
        done[0] += 1
        if told:
            told(f"demo-{seed}", done[0], recipe.training.epochs)

    source = make_source(recipe, seed, advance=advance)
    parts = split(uci_digits(), seed, source=recipe.source_digits, target=recipe.target_digits)
    train, held_out = (Domain(part.inputs, part.targets[:, None]) for part in (parts.source, parts.target))
    return Bench(
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


def california_bench(seed: int, *, data: Path | None, models: Path, told: Told | None = None) -> Bench:
    """Return a source model of California Housing, trained as by ``regtta reproduce california``."""
    setting = SETTINGS["california"]
    place = Place(data_folder(data))
    check_there(setting.data, place)
    workshop = Workshop(Tools(place, models), told)
    prepared = workshop.prepare(SourceSpec(setting.data, setting.model, "regression", setting.recipe, seed))
    loaded = LOADERS[setting.data](place, "", seed)
    return Bench(
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
