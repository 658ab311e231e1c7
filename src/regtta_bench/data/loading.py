"""Loaders of the data sets: source splits and named target domains."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from regtta_bench.corruptions import corrupt
from regtta_bench.data.biwi import GENDERS_FILE, Biwi, biwi, read_genders
from regtta_bench.data.california import california, fetch_california
from regtta_bench.data.catalogue import DATASETS, data_folder, missing
from regtta_bench.data.cifar10c import cifar10c
from regtta_bench.data.digit_images import svhn_subset_to_mnist
from regtta_bench.data.domains import Domain, Shift
from regtta_bench.data.pictures import Pictures
from regtta_bench.data.torchvision_sets import cifar10, svhn_to_mnist
from regtta_bench.data.utkface import utkface

logger = logging.getLogger(__name__)

SEVERITY = 5  # the highest, as in the paper
CORRUPTION_SEED = 0  # fixed, so that all source models share the corrupted sets


@dataclass(frozen=True)
class Place:
    """Location of the data sets, resolved on the machine that loads them.

    Attributes:
        named: the folder of all data sets; None for the folder named by the environment.
        download: whether missing data may be downloaded.
        genders: file with the genders of the subjects in Biwi Kinect; None for the default in the data folder.
    """

    named: Path | None = None
    download: bool = False
    genders: Path | None = None

    @property
    def folder(self) -> Path:
        """Folder of all data sets; raises ``MissingFileError`` if none is configured."""
        return data_folder(self.named)


@dataclass(frozen=True, eq=False)
class Loaded:
    """A source domain and its target domains.

    Attributes:
        train: source samples for training and for source statistics.
        validation: held-out source samples.
        target: returns the target domain of a name.
    """

    train: Domain
    validation: Domain
    target: Callable[[str], Domain]


Load = Callable[[Place, str, int], Loaded]


def _of_shift(shift: Shift) -> Loaded:
    return Loaded(shift.train, shift.validation, lambda _: shift.target)


def _california(place: Place, variant: str, seed: int) -> Loaded:  # noqa: ARG001 - all loaders share one signature
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
        logger.warning("%d files of UTKFace have no age in their name and were skipped.", len(faces.skipped))

    def target(corruption: str) -> Domain:
        images = corrupt(faces.validation.images, corruption, severity=SEVERITY, seed=CORRUPTION_SEED)
        return Pictures(images, faces.validation.targets).domain()

    return Loaded(faces.train.domain(), faces.validation.domain(), target)


@lru_cache(maxsize=1)
def _frames(folder: Path, genders: Path | None) -> Biwi:
    frames = biwi(folder, genders=genders)  # 3 GB: read once for all source domains
    if frames.skipped:
        logger.warning("%d frames of Biwi Kinect have no pose and were skipped.", len(frames.skipped))
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

DISCRETE = ("svhn", "svhn-subset", "cifar10")  # data sets whose labels are classes already

# Catalogue entries that must be present in the data folder, by loader.
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
_PROOF = MappingProxyType({"svhn": ("svhn/train_32x32.mat",)})  # the folder alone may belong to another data set


def check_there(data: str, place: Place) -> None:
    """Raise ``MissingFileError`` if a data set is missing, or download it if ``place`` allows that.

    Data sets that torchvision can download are downloaded later, when they are loaded.
    """
    for name in _NEEDED[data]:
        paths = _PROOF.get(name, DATASETS[name].places)
        found = any((place.folder / path).exists() for path in paths)
        if found or (place.download and name in _FETCHED_BY_TORCHVISION):
            continue
        if place.download and name == "california":
            fetch_california(place.folder)
            continue
        raise missing(name, place.folder, place.folder / DATASETS[name].places[0])
    if data == "biwi":
        read_genders(place.genders or place.folder / GENDERS_FILE, ())
