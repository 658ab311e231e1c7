"""Parameters of each corruption, one tuple for each severity from 1 to 5.

The values are those of Hendrycks & Dietterich (2019), "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations": ``imagenet`` is the set of ImageNet-C, for 224×224 images, ``cifar`` that of CIFAR-10-C, for 32×32.
"""

from collections.abc import Mapping
from types import MappingProxyType

from regtta.options import check_choice

Parameters = tuple[float, ...]
Severities = tuple[Parameters, Parameters, Parameters, Parameters, Parameters]

SEVERITIES = (1, 2, 3, 4, 5)

# Names of the parameters in each tuple, in order.
FIGURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
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


def parameters(constants: str, name: str, severity: int) -> Parameters:
    """Return the parameters of a corruption as its function takes them; those of the elastic transform are in pixels.

    Example:
        >>> parameters("imagenet", "fog", 5)
        (3, 1.4)
        >>> parameters("cifar", "elastic_transform", 5)
        (3.2, 0.96, 0.96)
    """
    check_choice("constants", constants, tuple(CONSTANTS))
    params = CONSTANTS[constants][name][severity - 1]
    if name == "elastic_transform":
        return tuple(share * ELASTIC_SIDES[constants] for share in params)
    return params
