"""Conversion of images between uint8 and float32 in [0, 1]."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
