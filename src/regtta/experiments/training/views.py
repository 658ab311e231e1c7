"""Preprocessing of model inputs by a recipe: random augmentation in training, deterministic otherwise."""

import torch
from torch import Tensor
from torch.nn import functional

from regtta.augmentation import windows
from regtta.experiments.datasets.photo_transforms import centre_window, colour_jitter, crop_and_flip, normalise
from regtta.experiments.training.recipe import Recipe


def plain_view(inputs: Tensor, recipe: Recipe) -> Tensor:
    """Return ``inputs`` preprocessed without augmentation, as for evaluation.

    Example:
        >>> plain_view(torch.zeros(2, 3, 256, 256, dtype=torch.uint8), Recipe(photo_side=224)).shape
        torch.Size([2, 3, 224, 224])
    """
    if recipe.photo_side:
        inputs = normalise(centre_window(inputs, recipe.photo_side))
    return _resized(inputs, recipe)


def training_view(inputs: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Return ``inputs`` preprocessed for training: randomly cropped, mirrored and colour-jittered by the recipe."""
    if recipe.photo_side:
        inputs = crop_and_flip(inputs, generator, recipe.photo_side)
        if recipe.colour_jitter:
            inputs = colour_jitter(inputs, generator, recipe.colour_jitter)
        inputs = normalise(inputs)
    if recipe.crop_padding:
        inputs = random_crop(inputs, recipe.crop_padding, generator)
    return _resized(inputs, recipe)


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Pad images ``(B, C, H, W)`` with ``padding`` black pixels, and crop each back to its size at random."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    corner = torch.randint(2 * padding + 1, (2, count, 1), generator=generator)
    return windows(padded, torch.arange(height) + corner[0], torch.arange(width) + corner[1])


def _resized(images: Tensor, recipe: Recipe) -> Tensor:
    if not recipe.resized:
        return images
    return functional.interpolate(images, size=(recipe.resized,) * 2, mode="bilinear", align_corners=False)
