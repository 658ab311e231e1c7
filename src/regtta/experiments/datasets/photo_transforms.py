"""Transforms for batches of photographs (B, 3, H, W): random crops, flips, colour jitter and normalisation.

Random values are drawn independently for each image from the given generator, which is on the CPU whatever the device
of the images.
"""

import torch
from torch import Tensor

from regtta.augmentation import windows
from regtta.errors import BatchError
from regtta.experiments.datasets.pictures import CROPPED

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


def centre_window(images: Tensor, side: int = CROPPED) -> Tensor:
    """Return the centre crop (B, 3, side, side) of each image."""
    _check(images)
    height, width = _check_side(images, side)
    top, left = round((height - side) / 2), round((width - side) / 2)
    return images[..., top : top + side, left : left + side]


def crop_and_flip(images: Tensor, generator: torch.Generator, side: int = CROPPED) -> Tensor:
    """Return a random crop (B, 3, side, side) of each image, flipped horizontally with probability 0.5."""
    _check(images)
    count = len(images)
    height, width = _check_side(images, side)
    top = torch.randint(height - side + 1, (count, 1), generator=generator)
    left = torch.randint(width - side + 1, (count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    along = torch.arange(side)
    columns = left + torch.where(mirrored, along.flip(0), along)
    return windows(images, top + along, columns).contiguous()


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
