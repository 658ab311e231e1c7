"""Photographs as uint8 arrays: decoded, resized to 256×256 and cropped to 224×224, without normalisation."""

import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from regtta.errors import BatchError, ForeignFileError
from regtta.experiments.datasets.domains import Domain
from regtta.reading import clear_errors

RESIZED = 256
CROPPED = 224
MOST_BYTES = 32 * 2**20  # per file; faces and frames have some 100 KB
MOST_PIXELS = (
    50_000_000  # per image, 150 MB decoded: above the resolution of cameras, with room to decode several at once
)
_AT_ONCE = 64  # pictures held in memory for decoding


@dataclass(frozen=True, eq=False)
class Pictures:
    """Samples of one domain before normalisation: ``images`` (N, S, S, 3) uint8 and ``targets`` (N, O) float32."""

    images: np.ndarray
    targets: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Tensor) -> "Pictures":
        """Return the samples at ``rows``, given as indices or as a mask."""
        return Pictures(self.images[rows.numpy()], self.targets[rows])

    def cropped(self, side: int = CROPPED) -> "Pictures":
        """Return the centre crop (N, side, side, 3) of each image, without copying."""
        return Pictures(centre(self.images, side), self.targets)

    def domain(self) -> Domain:
        """Return inputs (N, 3, S, S), still uint8, and targets."""
        return Domain(torch.from_numpy(np.ascontiguousarray(self.images.transpose(0, 3, 1, 2))), self.targets)


@dataclass(frozen=True, eq=False)
class PictureShift:
    """Data set of photographs with a distribution shift.

    Attributes:
        name: name in the results.
        train: source pictures, (N, 256, 256, 3), to be cropped at random or in the centre.
        validation: held-out source pictures, (N, 224, 224, 3).
        target: target pictures for adaptation and scoring, (N, 224, 224, 3).
    """

    name: str
    train: Pictures
    validation: Pictures
    target: Pictures


def centre(images: np.ndarray, side: int) -> np.ndarray:
    """Return the centre crop (N, side, side, 3) of images (N, H, W, 3), as a view."""
    height, width = images.shape[1:3]
    if side > min(height, width):
        raise BatchError(f"Expected images of at least {side}×{side} to crop, found {height}×{width}.")
    top, left = round((height - side) / 2), round((width - side) / 2)
    return images[:, top : top + side, left : left + side]


def decode(name: str, raw: bytes, *, square: bool = False) -> np.ndarray:
    """Decode a JPEG or PNG file to (256, 256, 3) uint8, resized bilinearly.

    Args:
        name: name of the file for error messages.
        raw: content of the file.
        square: if True, crop to the centre square before resizing.
    """
    from PIL import Image, UnidentifiedImageError

    if len(raw) > MOST_BYTES:
        raise ForeignFileError(f"{name} has {len(raw)} bytes; at most {MOST_BYTES} are read as an image.")
    with clear_errors(
        lambda why: ForeignFileError(
            f"{name} cannot be read as a JPEG or PNG image: {why}. Download it again, or remove it."
        )
    ):
        try:
            opened = Image.open(io.BytesIO(raw), formats=("JPEG", "PNG"))
        except UnidentifiedImageError as error:
            raise ValueError("unknown file signature") from error
        with opened:
            width, height = opened.size
            if width * height > MOST_PIXELS:
                raise ForeignFileError(f"{name} is {width}×{height}; at most {MOST_PIXELS} pixels are read.")
            image = opened.convert("RGB")
        if square:
            side = min(width, height)
            left, top = round((width - side) / 2), round((height - side) / 2)
            image = image.crop((left, top, left + side, top + side))
        return np.asarray(image.resize((RESIZED, RESIZED), Image.Resampling.BILINEAR))


def stack(files: Iterable[tuple[int, str, bytes]], count: int, *, side: int, square: bool = False) -> np.ndarray:
    """Decode files into one array (count, side, side, 3), the centre of each 256×256 image.

    Args:
        files: position in the array, name and content of each file; read sequentially, decoded in threads.
        count: number of files.
        side: side of the centre crop.
        square: as for :func:`decode`.
    """
    images = np.empty((count, side, side, 3), dtype=np.uint8)

    def put(file: tuple[int, str, bytes]) -> None:
        position, name, raw = file
        images[position] = centre(decode(name, raw, square=square)[None], side)[0]

    with ThreadPoolExecutor() as pool:
        for some in _groups(files):
            list(pool.map(put, some))
    return images


def _groups(files: Iterable[tuple[int, str, bytes]]) -> Iterator[list[tuple[int, str, bytes]]]:
    rest = iter(files)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
