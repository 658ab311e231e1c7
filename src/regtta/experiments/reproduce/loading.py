"""The data of each setting: its source, and its targets by name."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from regtta.experiments.corruptions import corrupt
from regtta.experiments.datasets import DATASETS, Domain, Pictures, Shift, data_folder
from regtta.experiments.datasets.biwi import GENDERS_FILE, Biwi, biwi
from regtta.experiments.datasets.california import california, fetch_california
from regtta.experiments.datasets.catalogue import missing
from regtta.experiments.datasets.cifar10c import cifar10c
from regtta.experiments.datasets.digit_images import svhn_subset_to_mnist
from regtta.experiments.datasets.genders import read_genders
from regtta.experiments.datasets.torchvision_sets import cifar10, svhn_to_mnist
from regtta.experiments.datasets.utkface import utkface

logger = logging.getLogger(__name__)

SEVERITY = 5  # the highest, as in the paper
CORRUPTION_SEED = 0  # the corrupted sets are the same for every source model


@dataclass(frozen=True)
class Place:
    """Where data lies, on whatever machine asks.

    Attributes:
        named: the folder of all data sets; None for the one that the environment names there.
        download: whether what is missing may be fetched.
        genders: the file that says whom Biwi's folders show; None for the one beside them.
    """

    named: Path | None = None
    download: bool = False
    genders: Path | None = None

    @property
    def folder(self) -> Path:
        """Of all data sets, or the error that says that there is none."""
        return data_folder(self.named)


@dataclass(frozen=True, eq=False)
class Loaded:
    """One source domain and what it shifts to.

    Attributes:
        train: to train on and to collect statistics from.
        validation: held out.
        target: gives the target of a name.
    """

    train: Domain
    validation: Domain
    target: Callable[[str], Domain]


Load = Callable[[Place, str, int], Loaded]


def _of_shift(shift: Shift) -> Loaded:
    return Loaded(shift.train, shift.validation, lambda _: shift.target)


def _california(place: Place, variant: str, seed: int) -> Loaded:  # noqa: ARG001 - every loader is called alike
    return _of_shift(california(place.folder, seed=seed))


def _svhn(place: Place, variant: str, seed: int) -> Loaded:  # noqa: ARG001
    return _of_shift(svhn_to_mnist(place.folder, download=place.download))


def _svhn_subset(place: Place, variant: str, seed: int) -> Loaded:  # noqa: ARG001
    return _of_shift(svhn_subset_to_mnist(place.folder))


def _cifar10(place: Place, variant: str, seed: int) -> Loaded:  # noqa: ARG001
    train, test = (cifar10(place.folder, split, download=place.download) for split in ("train", "test"))

    def target(corruption: str) -> Domain:
        return cifar10c(
            place.folder,
            corruption,
            SEVERITY,
            make=lambda images, name, severity: corrupt(
                images, name, severity=severity, constants="cifar", seed=CORRUPTION_SEED
            ),
        ).domain()

    return Loaded(train, test, target)


def _utkface(place: Place, variant: str, seed: int) -> Loaded:  # noqa: ARG001
    faces = utkface(place.folder, seed=seed)
    if faces.skipped:
        logger.warning("%d files of UTKFace have no age in their name and were left out.", len(faces.skipped))

    def target(corruption: str) -> Domain:
        images = corrupt(faces.validation.images, corruption, severity=SEVERITY, seed=CORRUPTION_SEED)
        return Pictures(images, faces.validation.targets).domain()

    return Loaded(faces.train.domain(), faces.validation.domain(), target)


@lru_cache(maxsize=1)
def _frames(folder: Path, genders: Path | None) -> Biwi:
    frames = biwi(folder, genders=genders)  # 3 GB: read once for all its source domains
    if frames.skipped:
        logger.warning("%d frames of Biwi Kinect have no pose and were left out.", len(frames.skipped))
    return frames


def _biwi(place: Place, variant: str, seed: int) -> Loaded:
    source, _, angle = variant.partition("-")
    shift = _frames(place.folder, place.genders).shift(source, seed=seed, angle=angle or None)
    return Loaded(shift.train.domain(), shift.validation.domain(), lambda _: shift.target.domain())


LOADERS: Mapping[str, Load] = MappingProxyType(
    {
        "california": _california,
        "svhn": _svhn,
        "svhn-subset": _svhn_subset,
        "cifar10": _cifar10,
        "utkface": _utkface,
        "biwi": _biwi,
    }
)

DISCRETE = ("svhn", "svhn-subset", "cifar10")  # whose labels are classes as they are

# What must be in the folder of data sets, by the names of the catalogue.
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "california": ("california",),
        "svhn": ("svhn", "mnist"),
        "svhn-subset": ("svhn-subset", "mnist-test"),
        "cifar10": ("cifar10",),
        "utkface": ("utkface",),
        "biwi": ("biwi",),
    }
)
_FETCHED_BY_TORCHVISION = ("svhn", "mnist", "cifar10")
_PROOF = MappingProxyType({"svhn": ("svhn/train_32x32.mat",)})  # where the folder alone may be another's


def check_there(data: str, place: Place) -> None:
    """Raise before any work is done if a data set is not there, or get it where that is allowed.

    What torchvision fetches is fetched when it is loaded.
    """
    for name in _NEEDED[data]:
        spots = _PROOF.get(name, DATASETS[name].places)
        found = any((place.folder / spot).exists() for spot in spots)
        if found or (place.download and name in _FETCHED_BY_TORCHVISION):
            continue
        if place.download and name == "california":
            fetch_california(place.folder)
            continue
        raise missing(name, place.folder, place.folder / DATASETS[name].places[0])
    if data == "biwi":
        read_genders(place.genders or place.folder / GENDERS_FILE, ())
