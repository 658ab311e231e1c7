"""Digit regression with a shift from a subset of SVHN to MNIST.

Images are only scaled to [0, 1]. MNIST's grey images are resized to 32×32 and repeated to three channels; the model
adapts to its test split and is scored on it.
"""

import math
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from regtta.errors import InvalidFileError
from regtta.persistence import convert_errors, npz_array
from regtta_bench.data.archives import read_maybe_gzipped
from regtta_bench.data.catalogue import find_file
from regtta_bench.data.domains import Domain, ShiftedDataset

SIDE = 32
# MNIST's training images, its largest file, have 47 MB; each byte becomes 16 as three channels of 32×32 in float32.
MAX_IDX_BYTES = 64 * 2**20
_MNIST_SIDE = 28  # side of MNIST's images
_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049  # magic numbers of idx files of bytes with three dimensions and with one


def svhn_subset_to_mnist(folder: Path) -> ShiftedDataset:
    """Read the shift whose source is the first 10,000 digits of SVHN's test split, and whose target is MNIST."""
    train = _read_svhn_part(folder, "svhn/svhn_test_first10000_32x32.npz")
    validation = _read_svhn_part(folder, "svhn/svhn_train_first1083_32x32.npz")
    return ShiftedDataset("svhn-subset", train, validation, mnist_test(folder))


def mnist_test(folder: Path) -> Domain:
    """Read MNIST's test split: inputs (10000, 3, 32, 32) and targets (10000, 1)."""
    images, labels = (
        find_file(folder, "mnist-test", (f"mnist/{name}.gz", f"MNIST/raw/{name}.gz", f"MNIST/raw/{name}"))
        for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    )
    return mnist_domain(images, labels)


def mnist_domain(images_path: Path, labels_path: Path) -> Domain:
    """Read images (N, 28, 28) and digits (N,) from idx files; return (N, 3, 32, 32) in [0, 1] and (N, 1)."""
    images, labels = (
        torch.from_numpy(read_idx(images_path, _IMAGES_MAGIC)),
        torch.from_numpy(read_idx(labels_path, _LABELS_MAGIC)),
    )
    if images.shape[1:] != (_MNIST_SIDE, _MNIST_SIDE) or len(images) != len(labels) or len(images) == 0:
        raise InvalidFileError(
            f"Expected images of {_MNIST_SIDE}×{_MNIST_SIDE} and one label per image, found images of shape "
            f"{tuple(images.shape)} in {images_path} and {len(labels)} labels. Download them again."
        )
    pixels = images.unsqueeze(1).float() / 255
    resized = functional.interpolate(pixels, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    return Domain(resized.expand(-1, 3, -1, -1).contiguous(), labels.float().unsqueeze(1))


def rgb_domain(images: np.ndarray, labels: np.ndarray) -> Domain:
    """Convert uint8 images (N, H, W, 3) and labels (N,) to inputs (N, 3, H, W) in [0, 1] and targets (N, 1)."""
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    numbers = torch.from_numpy(labels.astype(np.float32)).unsqueeze(1)
    return Domain(torch.from_numpy(channels_first).float().div_(255), numbers)


def read_idx(path: Path, magic: int) -> np.ndarray:
    """Read a file in MNIST's idx format, gzipped or not, as a uint8 array."""
    raw = read_maybe_gzipped(path, MAX_IDX_BYTES)
    if raw[:4] != magic.to_bytes(4, "big"):
        raise InvalidFileError(
            f"Expected an idx file with the magic number {magic}, found another file: {path}. Download it again."
        )
    dimensions = raw[3]
    if len(raw) < 4 * (dimensions + 1):
        raise InvalidFileError(f"{path} is truncated in its header. Download it again.")
    shape = tuple(int.from_bytes(raw[4 * i : 4 * i + 4], "big") for i in range(1, dimensions + 1))
    values = np.frombuffer(raw[4 * (dimensions + 1) :], dtype=np.uint8)
    if values.size != math.prod(shape):
        raise InvalidFileError(
            f"Expected values of shape {shape} in {path}, found {values.size} values. Download it again."
        )
    return values.reshape(shape).copy()


def _read_svhn_part(folder: Path, name: str) -> Domain:
    path = find_file(folder, "svhn-subset", (name,))
    with (
        convert_errors(
            lambda why: InvalidFileError(f"{path} is not a complete archive of arrays: {why}. Download it again.")
        ),
        zipfile.ZipFile(path) as archive,
    ):
        x, y = (npz_array(archive, wanted) for wanted in ("x", "y"))
    if x.dtype != np.uint8 or x.shape != (len(x), SIDE, SIDE, 3) or y.shape != (len(x),) or y.dtype.kind not in "iu":
        raise InvalidFileError(
            f"Expected x (N, {SIDE}, {SIDE}, 3) of bytes and y (N,) of whole numbers in {path}, found {x.shape} of "
            f"{x.dtype} and {y.shape} of {y.dtype}. Download it again."
        )
    return rgb_domain(x, y)
