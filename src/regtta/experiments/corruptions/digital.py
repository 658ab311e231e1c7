"""Digital corruptions of images (N, H, W, 3) in [0, 1], given their parameters and one generator per image."""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image

from regtta.experiments.corruptions.constants import Parameters
from regtta.experiments.corruptions.images import Bytes, Floats, Generators, to_bytes, to_floats


def contrast(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Compute ``x̄ + c · (x − x̄)`` with the mean x̄ of each channel of each image. Deterministic."""
    (factor,) = params
    # One image at a time: over a batch, numpy may sum in another order.
    means = np.stack([image.mean(axis=(0, 1), keepdims=True, dtype=np.float64) for image in images]).astype(np.float32)
    return means + np.float32(factor) * (images - means)


def pixelate(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Shrink each side n to ⌊c · n⌋ with a box filter, then enlarge it to n by nearest neighbour. Deterministic."""
    (share,) = params
    height, width = images.shape[1:3]
    small = (int(width * share), int(height * share))

    def change(image: Image.Image) -> Image.Image:
        return image.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.NEAREST)

    return _each(images, change)


def jpeg_compression(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Encode as JPEG of quality c with Pillow and decode again. Deterministic."""
    (quality,) = params

    def change(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(quality))
        return Image.open(file)

    return _each(images, change)


def _each(images: Floats, change: Callable[[Image.Image], Image.Image]) -> Floats:
    """Apply ``change`` to every image as a Pillow image."""
    changed: list[Bytes] = [np.asarray(change(Image.fromarray(image))) for image in to_bytes(images)]
    return to_floats(np.stack(changed))
