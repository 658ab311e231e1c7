"""Differences of these corruptions from the published ones; everything else follows the definitions."""

from collections.abc import Mapping
from types import MappingProxyType

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
