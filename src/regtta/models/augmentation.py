"""Image augmentation for methods that compare predictions on several views of an input."""

import torch
from torch import Tensor

from regtta.errors import BatchError

SHIFT = 1 / 8
JITTER = 0.2
MIN_SIDE = 8


def shift_and_jitter(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random view of each image (B, C, H, W): shifted by up to an eighth, with brightness and contrast jitter.

    Each image has its own shift (edges repeated), brightness factor and contrast factor (both uniform in [0.8, 1.2]).

    Example:
        >>> view = shift_and_jitter(torch.rand(2, 3, 16, 16), torch.Generator().manual_seed(0))
        >>> view.shape
        torch.Size([2, 3, 16, 16])
    """
    if images.ndim != 4 or min(images.shape[-2:]) < MIN_SIDE or not images.is_floating_point():
        raise BatchError(
            f"There is no default augmentation for inputs of shape {tuple(images.shape)} and dtype {images.dtype}: "
            f"expected float images (B, C, H, W) of at least {MIN_SIDE} pixels per side. Pass "
            "augment=<callable(inputs, generator)>, or use a method that works with any input, such as ssa."
        )
    brightness, contrast = _factors(images, generator), _factors(images, generator)
    rows, columns = (_positions(images, side, int(images.shape[side] * SHIFT), generator) for side in (2, 3))
    views = crop_windows(images, rows, columns)
    mean = views.mean(dim=(1, 2, 3), keepdim=True)
    return ((views - mean) * contrast + mean) * brightness


def shift_pixels(images: Tensor, pixels: int, generator: torch.Generator) -> Tensor:
    """Return each image (B, C, H, W) shifted by its own random number of rows and columns, edges repeated.

    Args:
        images: (B, C, H, W).
        pixels: largest shift, in either direction.
        generator: of the shifts, on the CPU.

    Example:
        >>> image = torch.arange(4.0).expand(1, 1, 4, 4)
        >>> shift_pixels(image, 1, torch.Generator().manual_seed(0))[0, 0, 0]
        tensor([0., 0., 1., 2.])
    """
    rows, columns = (_positions(images, side, pixels, generator) for side in (2, 3))
    return crop_windows(images, rows, columns)


def _factors(images: Tensor, generator: torch.Generator) -> Tensor:
    factors = 1 + JITTER * (2 * torch.rand(len(images), 1, 1, 1, generator=generator) - 1)
    return factors.to(images)


def crop_windows(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return a window (B, C, h, w) of each image (B, C, H, W), given its ``rows`` (B, h) and ``columns`` (B, w).

    Example:
        >>> image = torch.arange(9).view(1, 1, 3, 3)
        >>> crop_windows(image, torch.tensor([[0, 1]]), torch.tensor([[2, 1]])).tolist()
        [[[[2, 1], [5, 4]]]]
    """
    samples = torch.arange(len(images), device=images.device)[:, None, None]
    rows, columns = rows.to(images.device), columns.to(images.device)
    # Advanced indexing puts the channels last.
    return images[samples, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _positions(images: Tensor, side: int, most: int, generator: torch.Generator) -> Tensor:
    """Return the source row or column (B, S) of each one of the view, shifted by up to ``most`` inside the image."""
    size = images.shape[side]
    offsets = torch.randint(-most, most + 1, (len(images), 1), generator=generator)
    return (torch.arange(size) + offsets).clamp(0, size - 1)
