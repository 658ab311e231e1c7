"""CIFAR-10-C, the corrupted test split of CIFAR-10: the published arrays, or computed images if those are absent.

``CIFAR-10-C/{corruption}.npy`` is (50000, 32, 32, 3) uint8, 10,000 images for each severity from 1 to 5 in order;
``labels.npy`` is (50000,).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regtta.errors import InvalidFileError, OptionError
from regtta.persistence import convert_errors
from regtta_bench.corruptions import SEVERITIES
from regtta_bench.data.catalogue import DATASETS, missing_dataset_error
from regtta_bench.data.digit_images import rgb_domain
from regtta_bench.data.domains import Domain
from regtta_bench.data.torchvision_sets import cifar10_arrays

IMAGES_PER_SEVERITY = 10_000

CorruptFunction = Callable[[np.ndarray, str, int], np.ndarray]


@dataclass(frozen=True, eq=False)
class CorruptedImages:
    """CIFAR-10's test split under one corruption.

    Attributes:
        images: images, (N, 32, 32, 3) uint8; memory-mapped and read-only if they are the published ones.
        labels: classes from 0 to 9, (N,) int64.
        corruption: name of the corruption.
        severity: severity from 1 to 5.
        published: True for the published arrays, False if computed from the clean test split.
    """

    images: np.ndarray
    labels: np.ndarray
    corruption: str
    severity: int
    published: bool

    def to_domain(self) -> Domain:
        """Return inputs (N, 3, 32, 32) in [0, 1] and targets (N, 1)."""
        return rgb_domain(self.images, self.labels)


def cifar10c(folder: Path, corruption: str, severity: int, *, make: CorruptFunction | None = None) -> CorruptedImages:
    """Read one corruption at one severity.

    Args:
        folder: folder of the data sets.
        corruption: name of the corruption, as in the published file names, such as "gaussian_noise".
        severity: severity from 1 to 5.
        make: called if the published file is absent, with CIFAR-10's test images (10000, 32, 32, 3) uint8, the name
            and the severity; returns the corrupted images in the same shape and dtype.
    """
    if re.fullmatch("[a-z0-9_]+", corruption) is None or corruption == "labels":
        raise OptionError(f"Expected the name of a corruption such as 'gaussian_noise', found {corruption!r}.")
    if severity not in SEVERITIES:
        raise OptionError(f"Expected a severity from 1 to 5, found {severity!r}.")
    path = folder / DATASETS["cifar10c"].paths[0]
    if (path / f"{corruption}.npy").is_file():
        return _read_published(folder, path, corruption, severity)
    if make is None:
        raise missing_dataset_error("cifar10c", folder, path, found=f"CIFAR-10-C's {corruption}.npy is not in {path}.")
    return _make_corrupted(folder, corruption, severity, make)


def _read_published(folder: Path, path: Path, corruption: str, severity: int) -> CorruptedImages:
    if not (path / "labels.npy").is_file():
        raise missing_dataset_error("cifar10c", folder, path, found=f"CIFAR-10-C's labels.npy is not in {path}.")
    count = IMAGES_PER_SEVERITY * len(SEVERITIES)
    images = _open_array(path / f"{corruption}.npy", (count, 32, 32, 3), ("uint8",))
    labels = _open_array(path / "labels.npy", (count,), ("uint8", "int32", "int64"))
    rows = slice((severity - 1) * IMAGES_PER_SEVERITY, severity * IMAGES_PER_SEVERITY)
    return CorruptedImages(images[rows], labels[rows].astype(np.int64), corruption, severity, published=True)


def _make_corrupted(folder: Path, corruption: str, severity: int, make: CorruptFunction) -> CorruptedImages:
    clean, labels = cifar10_arrays(folder, "test")
    images = make(clean.copy(), corruption, severity)
    if not isinstance(images, np.ndarray) or images.shape != clean.shape or images.dtype != np.uint8:
        found = (images.shape, images.dtype) if isinstance(images, np.ndarray) else type(images).__name__
        raise OptionError(f"Expected make to return uint8 images of shape {clean.shape}, found {found}.")
    return CorruptedImages(images, labels, corruption, severity, published=False)


def _open_array(path: Path, shape: tuple[int, ...], kinds: tuple[str, ...]) -> np.ndarray:
    """Memory-map a .npy file read-only; numpy never unpickles a memory-mapped file."""
    with convert_errors(
        lambda why: InvalidFileError(f"{path} is not a complete array file: {why}. Download it again.")
    ):
        array = np.lib.format.open_memmap(path, mode="r")
    if array.shape != shape or array.dtype.name not in kinds:
        raise InvalidFileError(
            f"Expected an array {shape} of {' or '.join(kinds)} in {path}, found {array.shape} of {array.dtype}."
        )
    return array
