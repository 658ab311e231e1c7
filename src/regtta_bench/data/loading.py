"""Loaders of the data sets: source splits and named target domains."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType

import torch

from regtta_bench.corruptions import CORRUPTIONS, corrupt
from regtta_bench.data.biwi import GENDERS_FILE, Biwi, biwi, read_genders
from regtta_bench.data.california import california, download_california
from regtta_bench.data.catalogue import DATASETS, missing_dataset_error, resolve_data_folder
from regtta_bench.data.cifar10c import cifar10c
from regtta_bench.data.digit_images import mnist_test, svhn_subset_to_mnist
from regtta_bench.data.domains import Domain, ShiftedDataset
from regtta_bench.data.pictures import Pictures
from regtta_bench.data.table_shifts import TableShifts
from regtta_bench.data.tabular_sets import TABLE_FILES, find_table
from regtta_bench.data.torchvision_sets import cifar10, svhn_to_mnist
from regtta_bench.data.utkface import utkface

logger = logging.getLogger(__name__)

SEVERITY = 5  # the highest, as in the paper
CORRUPTION_SEED = 0  # fixed, so that all source models share the corrupted sets


@dataclass(frozen=True)
class DataLocation:
    """Location of the data sets, resolved on the machine that loads them.

    Attributes:
        root: the folder of all data sets; None for the folder named by the environment.
        download: whether missing data may be downloaded.
        genders: file with the genders of the subjects in Biwi Kinect; None for the default in the data folder.
    """

    root: Path | None = None
    download: bool = False
    genders: Path | None = None

    @property
    def folder(self) -> Path:
        """Folder of all data sets; raises ``MissingFileError`` if none is configured."""
        return resolve_data_folder(self.root)


@dataclass(frozen=True, eq=False)
class LoadedDataset:
    """A source domain and its target domains.

    Attributes:
        train: source samples for training and for source statistics.
        validation: held-out source samples.
        target: returns the target domain of a name.
    """

    train: Domain
    validation: Domain
    target: Callable[[str], Domain]


Loader = Callable[[DataLocation, str, int], LoadedDataset]


def _from_shift(shift: ShiftedDataset) -> LoadedDataset:
    return LoadedDataset(shift.train, shift.validation, lambda _: shift.target)


def _california(location: DataLocation, variant: str, seed: int) -> LoadedDataset:  # noqa: ARG001 - all loaders share one signature
    return _from_shift(california(location.folder, seed=seed))


def _svhn(location: DataLocation, variant: str, seed: int) -> LoadedDataset:  # noqa: ARG001
    return _from_shift(svhn_to_mnist(location.folder, download=location.download))


def _svhn_subset(location: DataLocation, variant: str, seed: int) -> LoadedDataset:  # noqa: ARG001
    shift = svhn_subset_to_mnist(location.folder)

    def target(name: str) -> Domain:
        return _corrupted(shift.validation, name) if name in CORRUPTIONS else shift.target

    return LoadedDataset(shift.train, shift.validation, target)


def _mnist(location: DataLocation, variant: str, seed: int) -> LoadedDataset:  # noqa: ARG001
    digits = mnist_test(location.folder)
    train, held_out = (digits.take(rows) for rows in torch.split(torch.arange(len(digits)), math.ceil(len(digits) / 2)))
    return LoadedDataset(train, held_out, partial(_corrupted, held_out))


def _corrupted(images: Domain, corruption: str) -> Domain:
    """Return images ``(N, 3, H, W)`` in [0, 1] with a corruption applied, by the constants for 32×32 images."""
    pixels = (images.inputs * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    corrupted = corrupt(pixels, corruption, severity=SEVERITY, constants="cifar", seed=CORRUPTION_SEED)
    inputs = torch.from_numpy(corrupted).permute(0, 3, 1, 2).contiguous().float().div_(255)
    return Domain(inputs, images.targets)


def _table(location: DataLocation, variant: str, seed: int, *, data: str) -> LoadedDataset:
    shifts = TableShifts(location.folder, data, variant, seed=seed)
    return LoadedDataset(shifts.train, shifts.validation, shifts.target)


def _cifar10(location: DataLocation, variant: str, seed: int) -> LoadedDataset:  # noqa: ARG001
    train, test = (cifar10(location.folder, split, download=location.download) for split in ("train", "test"))

    def target(corruption: str) -> Domain:
        return cifar10c(
            location.folder,
            corruption,
            SEVERITY,
            make=lambda images, name, severity: corrupt(
                images, name, severity=severity, constants="cifar", seed=CORRUPTION_SEED
            ),
        ).to_domain()

    return LoadedDataset(train, test, target)


def _utkface(location: DataLocation, variant: str, seed: int) -> LoadedDataset:  # noqa: ARG001
    faces = utkface(location.folder, seed=seed)
    if faces.skipped:
        logger.warning("%d files of UTKFace have no age in their name and were skipped.", len(faces.skipped))

    def target(corruption: str) -> Domain:
        images = corrupt(faces.validation.images, corruption, severity=SEVERITY, seed=CORRUPTION_SEED)
        return Pictures(images, faces.validation.targets).to_domain()

    return LoadedDataset(faces.train.to_domain(), faces.validation.to_domain(), target)


@lru_cache(maxsize=1)
def _frames(folder: Path, genders: Path | None) -> Biwi:
    frames = biwi(folder, genders=genders)  # 3 GB: read once for all source domains
    if frames.skipped:
        logger.warning("%d frames of Biwi Kinect have no pose and were skipped.", len(frames.skipped))
    return frames


def _biwi(location: DataLocation, variant: str, seed: int) -> LoadedDataset:
    source, _, angle = variant.partition("-")
    shift = _frames(location.folder, location.genders).split_by_gender(source, seed=seed, angle=angle or None)
    return LoadedDataset(shift.train.to_domain(), shift.validation.to_domain(), lambda _: shift.target.to_domain())


LOADERS: Mapping[str, Loader] = MappingProxyType(
    {
        "california": _california,
        "svhn": _svhn,
        "svhn-subset": _svhn_subset,
        "cifar10": _cifar10,
        "utkface": _utkface,
        "biwi": _biwi,
        "mnist": _mnist,
        **{data: partial(_table, data=data) for data in TABLE_FILES},
    }
)

DISCRETE_LABELS = ("svhn", "svhn-subset", "mnist", "cifar10")  # data sets whose labels are classes already

# Catalogue entries that must be present in the data folder, by loader.
_REQUIRED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "california": ("california",),
        "svhn": ("svhn", "mnist"),
        "svhn-subset": ("svhn-subset", "mnist-test"),
        "cifar10": ("cifar10",),
        "utkface": ("utkface",),
        "biwi": ("biwi",),
        "mnist": ("mnist-test",),
    }
)
_DOWNLOADED_BY_TORCHVISION = ("svhn", "mnist", "cifar10")
_MARKER_FILES = MappingProxyType({"svhn": ("svhn/train_32x32.mat",)})  # the folder alone may belong to another data set


def check_available(data: str, location: DataLocation) -> None:
    """Raise ``MissingFileError`` if a data set is missing, or download it if ``location`` allows that.

    Data sets that torchvision can download are downloaded later, when they are loaded.
    """
    for path in TABLE_FILES.get(data, ()):
        find_table(location.folder, data, path)
    for name in _REQUIRED.get(data, ()):
        paths = _MARKER_FILES.get(name, DATASETS[name].paths)
        found = any((location.folder / path).exists() for path in paths)
        if found or (location.download and name in _DOWNLOADED_BY_TORCHVISION):
            continue
        if location.download and name == "california":
            download_california(location.folder)
            continue
        raise missing_dataset_error(name, location.folder, location.folder / DATASETS[name].paths[0])
    if data == "biwi":
        read_genders(location.genders or location.folder / GENDERS_FILE, ())
