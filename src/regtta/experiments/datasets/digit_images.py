"""SVHN's subset and MNIST: digits read as numbers, from house fronts to handwriting.

Images are scaled to [0, 1] and nothing else. MNIST's grey images are repeated to three channels and resized to 32×32;
its test split is both what the model adapts to and what it is scored on.
"""

import math
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from regtta.errors import ForeignFileError
from regtta.experiments.datasets.domains import Domain, Shift
from regtta.experiments.datasets.location import find_file
from regtta.experiments.datasets.unpacking import unpacked
from regtta.reading import clear_errors, npz_array

SIDE = 32
# MNIST's training images, its largest file, have 47 MB; each byte becomes 16 as three channels of 32×32 in float32.
MOST_IDX_BYTES = 64 * 2**20
_DRAWN = 28  # the side of MNIST's images
_IMAGES, _LABELS = 2051, 2049  # what idx files begin with: the number and the width of their dimensions


def svhn_subset_to_mnist(folder: Path) -> Shift:
    """The first 10,000 digits of SVHN's test split as the source: a subset, never called SVHN."""
    train = _svhn_part(folder, "svhn/svhn_test_first10000_32x32.npz")
    validation = _svhn_part(folder, "svhn/svhn_train_first1083_32x32.npz")
    return Shift("svhn-subset", train, validation, mnist_test(folder))


def mnist_test(folder: Path) -> Domain:
    """MNIST's test split as (10000, 3, 32, 32) and (10000, 1)."""
    images, labels = (
        find_file(folder, "mnist-test", (f"mnist/{name}.gz", f"MNIST/raw/{name}.gz", f"MNIST/raw/{name}"))
        for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    )
    return mnist_domain(images, labels)


def mnist_domain(images_path: Path, labels_path: Path) -> Domain:
    """Grey images (N, 28, 28) of bytes and their digits (N,), as (N, 3, 32, 32) in [0, 1] and (N, 1)."""
    images, labels = torch.from_numpy(read_idx(images_path, _IMAGES)), torch.from_numpy(read_idx(labels_path, _LABELS))
    if images.shape[1:] != (_DRAWN, _DRAWN) or len(images) != len(labels) or len(images) == 0:
        raise ForeignFileError(
            f"Expected images of {_DRAWN}×{_DRAWN} and as many labels: {images_path} has {len(images)} images and "
            f"{len(labels)} labels, in the shape {tuple(images.shape)}. Get it again."
        )
    pixels = images.unsqueeze(1).float() / 255
    resized = functional.interpolate(pixels, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    return Domain(resized.expand(-1, 3, -1, -1).contiguous(), labels.float().unsqueeze(1))


def rgb_domain(images: np.ndarray, labels: np.ndarray) -> Domain:
    """Images (N, H, W, 3) of bytes and their numbers (N,), as (N, 3, H, W) in [0, 1] and (N, 1)."""
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    numbers = torch.from_numpy(labels.astype(np.float32)).unsqueeze(1)
    return Domain(torch.from_numpy(channels_first).float().div_(255), numbers)


def read_idx(path: Path, magic: int) -> np.ndarray:
    """A file in MNIST's idx format, gzipped or not."""
    raw = unpacked(path, MOST_IDX_BYTES)
    if raw[:4] != magic.to_bytes(4, "big"):
        raise ForeignFileError(f"{path} is not the idx file expected there. Get it again.")
    dimensions = raw[3]
    if len(raw) < 4 * (dimensions + 1):
        raise ForeignFileError(f"{path} is cut off in its header. Get it again.")
    shape = tuple(int.from_bytes(raw[4 * i : 4 * i + 4], "big") for i in range(1, dimensions + 1))
    values = np.frombuffer(raw[4 * (dimensions + 1) :], dtype=np.uint8)
    if values.size != math.prod(shape):
        raise ForeignFileError(f"{path} is cut off: it promises {shape}. Get it again.")
    return values.reshape(shape).copy()


def _svhn_part(folder: Path, name: str) -> Domain:
    path = find_file(folder, "svhn-subset", (name,))
    with (
        clear_errors(lambda why: ForeignFileError(f"{path} is no whole archive of arrays: {why}. Get it again.")),
        zipfile.ZipFile(path) as archive,
    ):
        x, y = (npz_array(archive, wanted) for wanted in ("x", "y"))
    if x.dtype != np.uint8 or x.shape != (len(x), SIDE, SIDE, 3) or y.shape != (len(x),) or y.dtype.kind not in "iu":
        raise ForeignFileError(
            f"Expected x (N, {SIDE}, {SIDE}, 3) of bytes and y (N,) of whole numbers in {path}, found {x.shape} of "
            f"{x.dtype} and {y.shape} of {y.dtype}. Get it again."
        )
    return rgb_domain(x, y)
