"""SVHN's subset and MNIST: digits read as numbers, from house fronts to handwriting.

Images are scaled to [0, 1] and nothing else. MNIST's grey images are repeated to three channels and resized to 32×32;
its test split is both what the model adapts to and what it is scored on.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from regtta.errors import ForeignFileError
from regtta.experiments.datasets.domains import Domain, Shift
from regtta.experiments.datasets.location import find_file
from regtta.experiments.datasets.unpacking import unpacked

SIDE = 32
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
    return mnist_domain(torch.from_numpy(read_idx(images, _IMAGES)), torch.from_numpy(read_idx(labels, _LABELS)))


def mnist_domain(images: Tensor, labels: Tensor) -> Domain:
    """Grey images (N, 28, 28) of bytes and their digits (N,), as (N, 3, 32, 32) in [0, 1] and (N, 1)."""
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
    raw = unpacked(path)
    if int.from_bytes(raw[:4], "big") != magic:
        raise ForeignFileError(f"{path} is not the idx file expected there. Get it again.")
    dimensions = raw[3]
    shape = tuple(int.from_bytes(raw[4 * i : 4 * i + 4], "big") for i in range(1, dimensions + 1))
    values = np.frombuffer(raw, dtype=np.uint8, offset=4 * (dimensions + 1))
    if values.size != np.prod(shape):
        raise ForeignFileError(f"{path} is cut off: it promises {shape}. Get it again.")
    return values.reshape(shape).copy()


def _svhn_part(folder: Path, name: str) -> Domain:
    path = find_file(folder, "svhn-subset", (name,))
    with np.load(path, allow_pickle=False) as archive:
        return rgb_domain(archive["x"], archive["y"])
