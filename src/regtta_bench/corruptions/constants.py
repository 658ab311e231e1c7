"""Constants of the corruptions by severity and image size, and documented deviations from the published ones."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from regtta.options import check_choice

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Generators = Sequence[np.random.Generator]

# In grey levels: far above float32's rounding error, far below anything visible.
TOLERANCE = 2.0**-10


def to_floats(images: Bytes) -> Floats:
    """Return ``x / 255`` in float32."""
    return images.astype(np.float32, order="C") / np.float32(255)  # generators fill contiguous arrays only


def to_bytes(images: Floats) -> Bytes:
    """Return ``⌊255 · clip(x, 0, 1) + 2⁻¹⁰⌋`` as uint8: truncated like the published images, not rounded.

    Without the 2⁻¹⁰, float32 rounding could cost a whole grey level; with it, :func:`to_floats` is inverted exactly.

    Example:
        >>> to_bytes(np.array([-1, 0.5, 127 / 255, 2], dtype=np.float32)).tolist()
        [0, 127, 127, 255]
    """
    levels = np.clip(images, 0, 1) * np.float32(255)
    return (levels + np.float32(TOLERANCE)).astype(np.uint8)


Parameters = tuple[float, ...]
Severities = tuple[Parameters, Parameters, Parameters, Parameters, Parameters]

SEVERITIES = (1, 2, 3, 4, 5)

# Names of the parameters in each tuple, in order.
PARAMETER_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gaussian_noise": ("sd",),
        "shot_noise": ("count of photons at white",),
        "impulse_noise": ("share",),
        "defocus_blur": ("radius", "sigma of the edge"),
        "motion_blur": ("radius", "sigma"),
        "zoom_blur": ("end", "step"),
        "snow": ("loc", "scale", "zoom", "threshold", "radius", "sigma", "mix"),
        "fog": ("amount", "decay"),
        "brightness": ("offset",),
        "contrast": ("factor",),
        "elastic_transform": ("displacement", "sigma", "shift"),
        "pixelate": ("share",),
        "jpeg_compression": ("quality",),
    }
)

IMAGENET: Mapping[str, Severities] = MappingProxyType(
    {
        "gaussian_noise": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
        "shot_noise": ((60,), (25,), (12,), (5,), (3,)),
        "impulse_noise": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        "snow": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
        "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
        "elastic_transform": (
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        ),
        "pixelate": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
        "jpeg_compression": ((25,), (18,), (15,), (10,), (7,)),
    }
)

CIFAR: Mapping[str, Severities] = MappingProxyType(
    {
        "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
        "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
        "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        "snow": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
        "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
        "elastic_transform": (
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        ),
        "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
        "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
    }
)

CONSTANTS: Mapping[str, Mapping[str, Severities]] = MappingProxyType({"imagenet": IMAGENET, "cifar": CIFAR})

# The elastic transform's parameters are fractions of this many pixels, whatever the size of the image.
ELASTIC_SIDES: Mapping[str, int] = MappingProxyType({"imagenet": 244, "cifar": 32})


def get_parameters(constants: str, name: str, severity: int) -> Parameters:
    """Return the parameters of a corruption as its function takes them; those of the elastic transform are in pixels.

    Example:
        >>> get_parameters("imagenet", "fog", 5)
        (3, 1.4)
        >>> get_parameters("cifar", "elastic_transform", 5)
        (3.2, 0.96, 0.96)
    """
    check_choice("constants", constants, tuple(CONSTANTS))
    params = CONSTANTS[constants][name][severity - 1]
    if name == "elastic_transform":
        return tuple(share * ELASTIC_SIDES[constants] for share in params)
    return params


DEVIATIONS: Mapping[str, str] = MappingProxyType(
    {
        "all": (
            "Arithmetic is in float32 and 2⁻¹⁰ of a grey level is added before truncation to uint8, so that rounding "
            "does not darken an image by one level; random numbers are drawn per image, so no pixel of a random "
            "corruption equals the published one."
        ),
        "impulse_noise": "One draw per value decides between salt, pepper and neither; the distribution is the same.",
        "defocus_blur": (
            "The edge of the disk is blurred without cutting the kernel at ±radius, which the published code does from "
            "radius 8 on; the kernel here sums to 1 exactly."
        ),
        "motion_blur": (
            "A reimplementation of ImageMagick's motion blur: 2·radius + 1 taps, each at the nearest pixel, with edges "
            "replicated; without its 8-bit intermediate file."
        ),
        "zoom_blur": (
            "The end of the range is excluded at every severity; the published np.arange includes it, by rounding, "
            "where the end is 1.11 or 1.06, so severity 1 of ImageNet-C and severities 1 and 2 of CIFAR-10-C have one "
            "factor fewer here. On images that are not square each axis is cropped by its own side."
        ),
        "snow": "The layer of flakes is not stored in 8 bits between its steps; its blur is the motion blur above.",
        "fog": (
            "The fractal is made on the least power of two that covers the image (256 for 224, 32 for 32, as "
            "published) and cut to its height and width."
        ),
        "brightness": "Channels are scaled by the new value over the old: the same colours, without HSV in between.",
        "elastic_transform": (
            "The affine map is sampled at exact positions, where OpenCV rounds them to 1/32 of a pixel; the Gaussian "
            "filter is applied to cosine transforms. Shares stay those of 244 or 32 pixels at every image size."
        ),
        "pixelate": (
            "Enlarged by nearest neighbour, where the published code uses Pillow's box filter: the same bytes at 32×32 "
            "and 224×224, other ties at some other sizes."
        ),
        "jpeg_compression": "The bytes depend on the JPEG library that Pillow was built with.",
    }
)
