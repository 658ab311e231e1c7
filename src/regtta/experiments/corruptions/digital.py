"""What happens to files and screens: each takes images (N, H, W, 3) in [0, 1], the figures, a generator an image."""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image

from regtta.experiments.corruptions.constants import Parameters
from regtta.experiments.corruptions.images import Bytes, Floats, Generators, to_bytes, to_floats


def contrast(images: Floats, figures: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """``x̄ + c · (x − x̄)`` around the mean x̄ of each channel of each image. Draws nothing."""
    (factor,) = figures
    # Image by image: over a batch, numpy may add in another order.
    means = np.stack([image.mean(axis=(0, 1), keepdims=True, dtype=np.float64) for image in images]).astype(np.float32)
    return means + np.float32(factor) * (images - means)


def pixelate(images: Floats, figures: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Each side n shrunk to ⌊c · n⌋ by means over boxes, then enlarged to n by nearest neighbour. Draws nothing."""
    (share,) = figures
    height, width = images.shape[1:3]
    small = (int(width * share), int(height * share))

    def change(image: Image.Image) -> Image.Image:
        return image.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.NEAREST)

    return _each(images, change)


def jpeg_compression(images: Floats, figures: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Through a JPEG file of quality c and back, by Pillow. Draws nothing."""
    (quality,) = figures

    def change(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(quality))
        return Image.open(file)

    return _each(images, change)


def _each(images: Floats, change: Callable[[Image.Image], Image.Image]) -> Floats:
    """``change`` of every image, as Pillow sees it."""
    changed: list[Bytes] = [np.asarray(change(Image.fromarray(image))) for image in to_bytes(images)]
    return to_floats(np.stack(changed))
