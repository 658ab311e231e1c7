"""Pictures that are decoded on demand, and the transforms of photographs."""

import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from regtta.errors import BatchError, InvalidFileError
from regtta.models import crop_windows
from regtta.persistence import convert_errors
from regtta_bench.data.domains import Domain

RESIZED_SIDE = 256
CROPPED_SIDE = 224
MAX_PICTURE_BYTES = 32 * 2**20  # per file; faces and frames have some 100 KB
MAX_PIXELS = (
    50_000_000  # per image, 150 MB decoded: above the resolution of cameras, with room to decode several at once
)
_DECODED_AT_ONCE = 64  # pictures held in memory for decoding


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

    def centre_crop(self, side: int = CROPPED_SIDE) -> "Pictures":
        """Return the centre crop (N, side, side, 3) of each image, without copying."""
        return Pictures(centre_crop_array(self.images, side), self.targets)

    def to_domain(self) -> Domain:
        """Return inputs (N, 3, S, S), still uint8, and targets."""
        return Domain(torch.from_numpy(np.ascontiguousarray(self.images.transpose(0, 3, 1, 2))), self.targets)


@dataclass(frozen=True, eq=False)
class ShiftedPictures:
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


def centre_crop_array(images: np.ndarray, side: int) -> np.ndarray:
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

    if len(raw) > MAX_PICTURE_BYTES:
        raise InvalidFileError(f"{name} has {len(raw)} bytes; at most {MAX_PICTURE_BYTES} are read as an image.")
    with convert_errors(
        lambda why: InvalidFileError(
            f"{name} cannot be read as a JPEG or PNG image: {why}. Download it again, or remove it."
        )
    ):
        try:
            opened = Image.open(io.BytesIO(raw), formats=("JPEG", "PNG"))
        except UnidentifiedImageError as error:
            raise ValueError("unknown file signature") from error
        with opened:
            width, height = opened.size
            if width * height > MAX_PIXELS:
                raise InvalidFileError(f"{name} is {width}×{height}; at most {MAX_PIXELS} pixels are read.")
            image = opened.convert("RGB")
        if square:
            side = min(width, height)
            left, top = round((width - side) / 2), round((height - side) / 2)
            image = image.crop((left, top, left + side, top + side))
        return np.asarray(image.resize((RESIZED_SIDE, RESIZED_SIDE), Image.Resampling.BILINEAR))


def decode_all(files: Iterable[tuple[int, str, bytes]], count: int, *, side: int, square: bool = False) -> np.ndarray:
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
        images[position] = centre_crop_array(decode(name, raw, square=square)[None], side)[0]

    with ThreadPoolExecutor() as pool:
        for some in _groups(files):
            list(pool.map(put, some))
    return images


def _groups(files: Iterable[tuple[int, str, bytes]]) -> Iterator[list[tuple[int, str, bytes]]]:
    rest = iter(files)
    while some := list(islice(rest, _DECODED_AT_ONCE)):
        yield some


IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
JITTER = 0.3
_LUMA = (0.2989, 0.587, 0.114)


def normalise(images: Tensor) -> Tensor:
    """Scale uint8 images to [0, 1] and standardise them by ImageNet's mean and standard deviation, in float32.

    Example:
        >>> normalise(torch.zeros(1, 3, 1, 1, dtype=torch.uint8)).flatten().tolist()
        [-2.1179039478302, -2.0357141494750977, -1.804444432258606]
    """
    _check(images)
    mean, std = (_channels(values, images.device) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (images.float() / 255 - mean) / std


def centre_crop(images: Tensor, side: int = CROPPED_SIDE) -> Tensor:
    """Return the centre crop (B, 3, side, side) of each image."""
    _check(images)
    height, width = _check_side(images, side)
    top, left = round((height - side) / 2), round((width - side) / 2)
    return images[..., top : top + side, left : left + side]


def crop_and_flip(images: Tensor, generator: torch.Generator, side: int = CROPPED_SIDE) -> Tensor:
    """Return a random crop (B, 3, side, side) of each image, flipped horizontally with probability 0.5."""
    _check(images)
    count = len(images)
    height, width = _check_side(images, side)
    top = torch.randint(height - side + 1, (count, 1), generator=generator)
    left = torch.randint(width - side + 1, (count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    along = torch.arange(side)
    columns = left + torch.where(mirrored, along.flip(0), along)
    return crop_windows(images, top + along, columns).contiguous()


def colour_jitter(images: Tensor, generator: torch.Generator, strength: float = JITTER) -> Tensor:
    """Scale brightness, contrast and saturation of each uint8 image by factors uniform in 1 ± ``strength``."""
    brightness, contrast, saturation = (
        1 + strength * (2 * torch.rand(len(images), generator=generator) - 1) for _ in range(3)
    )
    return adjust_colours(images, brightness, contrast, saturation)


def adjust_colours(images: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    """Adjust brightness, then contrast, then saturation of uint8 images; return uint8.

    Computes ``b·x``, then ``c·x + (1 − c)·mean(grey(x))``, then ``s·x + (1 − s)·grey(x)``, each clipped to 0..255.

    Args:
        images: uint8 images, (B, 3, H, W).
        brightness: factors b, (B,).
        contrast: factors c, (B,).
        saturation: factors s, (B,).
    """
    _check(images)
    b, c, s = (factors.to(images.device).float().view(-1, 1, 1, 1) for factors in (brightness, contrast, saturation))
    values = (images.float() * b).clamp(0, 255)
    mean = _grey(values).mean(dim=(1, 2, 3), keepdim=True)
    values = (c * values + (1 - c) * mean).clamp(0, 255)
    values = (s * values + (1 - s) * _grey(values)).clamp(0, 255)
    return values.round().to(torch.uint8)


def _grey(values: Tensor) -> Tensor:
    return (values * _channels(_LUMA, values.device)).sum(1, keepdim=True)


def _channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device).view(1, -1, 1, 1)


def _check(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise BatchError(
            f"Expected images (B, 3, H, W) of type uint8, found shape {tuple(images.shape)} and type {images.dtype}."
        )


def _check_side(images: Tensor, side: int) -> tuple[int, int]:
    """Return height and width; raise if one of them is less than ``side``."""
    height, width = images.shape[-2:]
    if side > min(height, width):
        raise BatchError(f"Expected images of at least {side}×{side} to crop, found {height}×{width}.")
    return height, width
