"""Applying a corruption to images, seeded per image."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from numbers import Integral
from types import MappingProxyType
from typing import Literal

import numpy as np

from regtta.errors import BatchError, OptionError
from regtta.options import check_choice
from regtta_bench.corruptions.blur import defocus_blur, motion_blur, zoom_blur
from regtta_bench.corruptions.constants import (
    SEVERITIES,
    Bytes,
    Floats,
    Generators,
    Parameters,
    get_parameters,
    to_bytes,
    to_floats,
)
from regtta_bench.corruptions.digital import (
    contrast,
    elastic_transform,
    gaussian_noise,
    impulse_noise,
    jpeg_compression,
    pixelate,
    shot_noise,
)
from regtta_bench.corruptions.weather import brightness, fog, snow


def image_generator(seed: int, name: str, severity: int, index: int) -> np.random.Generator:
    """Return the generator of image ``index``: Philox with the 128-bit BLAKE2b digest of the four arguments as its key.

    It depends on nothing else, so an image is corrupted the same way at any position of any batch.

    Example:
        >>> image_generator(0, "fog", 5, 7).random() == image_generator(0, "fog", 5, 7).random()
        True
        >>> image_generator(0, "fog", 5, 7).random() == image_generator(0, "fog", 5, 8).random()
        False
    """
    text = f"{seed}/{name}/{severity}/{index}"
    key = int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


Corruption = Callable[[Floats, Parameters, Generators], Floats]

CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": gaussian_noise,
        "shot_noise": shot_noise,
        "impulse_noise": impulse_noise,
        "defocus_blur": defocus_blur,
        "motion_blur": motion_blur,
        "zoom_blur": zoom_blur,
        "snow": snow,
        "fog": fog,
        "brightness": brightness,
        "contrast": contrast,
        "elastic_transform": elastic_transform,
        "pixelate": pixelate,
        "jpeg_compression": jpeg_compression,
    }
)

MIN_SIDE = 32
_VALUES_PER_CHUNK = 1 << 17  # pixel values per chunk: half a megabyte of float32 fits into the cache


def corrupt(
    images: Bytes,
    name: str,
    *,
    severity: int = 5,
    constants: Literal["imagenet", "cifar"] = "imagenet",
    seed: int,
    indices: Sequence[int] | None = None,
) -> Bytes:
    """Return the images with a corruption applied.

    The randomness of an image depends only on ``(seed, name, severity, index)``: any order, split into batches or
    subset gives the same result for an image of the same index.

    Args:
        images: uint8 RGB images, (N, H, W, 3) or (H, W, 3), with H and W of at least 32; not modified.
        name: name of the corruption, one of ``CORRUPTIONS``.
        severity: severity from 1 to 5.
        constants: ``"imagenet"``, designed for 224×224 images, or ``"cifar"``, designed for 32×32.
        seed: seed of the whole data set.
        indices: indices of the images in the data set, (N,); 0, 1, 2, … by default.

    Returns:
        The corrupted images, uint8, of the same shape.

    Raises:
        OptionError: If name, constants, severity, seed or indices are invalid.
        BatchError: If the images have another dtype or shape, or are smaller than 32×32.

    Example:
        >>> images = np.full((2, 32, 32, 3), 100, dtype=np.uint8)
        >>> corrupt(images, "brightness", severity=1, constants="cifar", seed=0)[0, 0, 0].tolist()
        [112, 112, 112]
        >>> both = corrupt(images, "fog", seed=0)
        >>> np.array_equal(corrupt(images[1:], "fog", seed=0, indices=[1]), both[1:])
        True
    """
    check_choice("name", name, tuple(CORRUPTIONS))
    _check_integer("severity", severity)
    if severity not in SEVERITIES:
        raise OptionError(f"Expected severity to be one of {list(SEVERITIES)}, found {severity}.")
    _check_integer("seed", seed)
    params = get_parameters(constants, name, severity)
    batch = _as_batch(images)
    numbers = _check_indices(indices, len(batch))
    corrupted = np.empty_like(batch, order="C")
    chunk = max(1, _VALUES_PER_CHUNK // max(1, batch[:1].size))
    for start in range(0, len(batch), chunk):
        part = slice(start, start + chunk)
        generators = [image_generator(int(seed), name, int(severity), index) for index in numbers[part]]
        corrupted[part] = to_bytes(CORRUPTIONS[name](to_floats(batch[part]), params, generators))
    return corrupted.reshape(images.shape)


def _as_batch(images: Bytes) -> Bytes:
    """Validate the images and return them as (N, H, W, 3)."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        found = f"{images.dtype}" if isinstance(images, np.ndarray) else type(images).__name__
        raise BatchError(
            f"Expected images as a numpy array of uint8, found {found}. Scale them to 0 … 255 and convert."
        )
    if images.ndim not in (3, 4) or images.shape[-1] != 3:
        raise BatchError(
            f"Expected images of shape (N, H, W, 3) or (H, W, 3), found {images.shape}. Channels come last, RGB."
        )
    if min(images.shape[-3:-1]) < MIN_SIDE:
        height, width = images.shape[-3:-1]
        raise BatchError(
            f"Expected images of at least {MIN_SIDE}×{MIN_SIDE}, found {height}×{width}. Resize them first."
        )
    return images.reshape(-1, *images.shape[-3:])


def _check_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise OptionError(f"Expected {name} to be a whole number, found {value!r}.")


def _check_indices(indices: Sequence[int] | None, count: int) -> Sequence[int]:
    """Validate that there is one whole number per image; return them as ints."""
    if indices is None:
        return range(count)
    if len(indices) != count:
        raise OptionError(f"Expected one index per image, found {len(indices)} indices for {count} images.")
    for index in indices:
        _check_integer("each of indices", index)
    return [int(index) for index in indices]
