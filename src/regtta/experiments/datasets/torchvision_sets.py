"""SVHN, MNIST and CIFAR-10, downloaded and verified by torchvision.

Images are only scaled to [0, 1]; MNIST's are converted to three channels of 32×32. Labels are the digit or the index of
the class, as float32 (N, 1). torchvision itself reads only SVHN's files, after verifying their checksums: it would
unpickle CIFAR-10's files, and those that old versions wrote for MNIST.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from regtta.errors import FileError, ForeignFileError, OptionError
from regtta.experiments.datasets.catalogue import DATASETS, missing
from regtta.experiments.datasets.cifar_batches import read_batch
from regtta.experiments.datasets.digit_images import mnist_domain, rgb_domain
from regtta.experiments.datasets.domains import Domain, Shift
from regtta.optional_imports import import_optional

Split = Literal["train", "test"]


def svhn_to_mnist(folder: Path, *, download: bool = False) -> Shift:
    """Read the shift from SVHN, with its test split held out, to MNIST's test split."""
    train, validation = (svhn(folder, split, download=download) for split in get_args(Split))
    return Shift("svhn-mnist", train, validation, mnist(folder, "test", download=download))


def svhn(folder: Path, split: Split, *, download: bool = False) -> Domain:
    """Read house-number digits, (73257 or 26032, 3, 32, 32), from ``svhn/{split}_32x32.mat``."""
    _check_split(split)
    root = folder / "svhn"
    data = _opened(
        "svhn", folder, [root / f"{split}_32x32.mat"], lambda sets: sets.SVHN(root, split, download=download), download
    )
    return rgb_domain(data.data.transpose(0, 2, 3, 1), data.labels)


def mnist(folder: Path, split: Split, *, download: bool = False) -> Domain:
    """Read handwritten digits, (60000 or 10000, 3, 32, 32), from ``MNIST/raw``, where torchvision puts its files."""
    _check_split(split)
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    files = [folder / "MNIST" / "raw" / f"{part}-{kind}" for part in ("train", "t10k") for kind in kinds]
    images, labels = files[:2] if split == "train" else files[2:]

    def build(sets: Any) -> Domain:
        if download:
            sets.MNIST(folder, train=split == "train", download=True)
        return mnist_domain(images, labels)

    domain: Domain = _opened("mnist", folder, files, build, download)
    return domain


def cifar10(folder: Path, split: Split, *, download: bool = False) -> Domain:
    """Read photographs of ten classes, (50000 or 10000, 3, 32, 32), from ``cifar-10-batches-py``."""
    return rgb_domain(*cifar10_arrays(folder, split, download=download))


def cifar10_arrays(folder: Path, split: Split, *, download: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Read CIFAR-10 as uint8 images (N, 32, 32, 3) and int64 classes (N,)."""
    _check_split(split)
    place = folder / "cifar-10-batches-py"

    def build(sets: Any) -> tuple[np.ndarray, np.ndarray]:
        published = sets.CIFAR10.train_list if split == "train" else sets.CIFAR10.test_list
        if download and not all(sets.utils.check_integrity(place / name, md5) for name, md5 in published):
            about = sets.CIFAR10
            sets.cifar.download_and_extract_archive(about.url, folder, filename=about.filename, md5=about.tgz_md5)
        images, labels = zip(*(read_batch(place / name, md5) for name, md5 in published), strict=True)
        return np.concatenate(images), np.concatenate(labels)

    arrays: tuple[np.ndarray, np.ndarray] = _opened("cifar10", folder, [place / "test_batch"], build, download)
    return arrays


def _opened(name: str, folder: Path, files: list[Path], build: Callable[[Any], Any], download: bool) -> Any:
    """Return ``build(torchvision.datasets)``; turn its failures into errors that say what to do."""
    datasets = import_optional("torchvision", "experiments", f"Reading {DATASETS[name].what}").datasets
    place = folder / DATASETS[name].places[0]
    try:
        return build(datasets)
    except (RuntimeError, OSError, ValueError, TypeError, KeyError, AssertionError, FileError) as error:
        what = DATASETS[name].what
        if download:
            raise FileError(f"{what} could not be downloaded to {place}, or is damaged: {error}.") from error
        if not all(file.exists() for file in files):
            raise missing(name, folder, place) from error
        raise ForeignFileError(
            f"{what} in {place} is incomplete or not as published ({error}). Remove it and get it again from "
            f"{DATASETS[name].origin}."
        ) from error


def _check_split(split: str) -> None:
    if split not in get_args(Split):
        raise OptionError(f"Expected split to be one of {list(get_args(Split))}, found {split!r}.")
