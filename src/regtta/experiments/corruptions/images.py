"""Images between bytes and numbers: uint8 outside, float32 in [0, 1] inside."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Generators = Sequence[np.random.Generator]

# Of a grey level: far above float32's rounding, far below anything that is seen.
TOLERANCE = 2.0**-10


def to_floats(images: Bytes) -> Floats:
    """``x / 255`` in float32."""
    return images.astype(np.float32, order="C") / np.float32(255)  # generators fill rows of memory alone


def to_bytes(images: Floats) -> Bytes:
    """``⌊255 · clip(x, 0, 1) + 2⁻¹⁰⌋``: truncated, as the published images are, not rounded.

    The 2⁻¹⁰ keeps float32's rounding from taking a whole grey level: what comes from bytes goes back to the same bytes.

    Example:
        >>> to_bytes(np.array([-1, 0.5, 127 / 255, 2], dtype=np.float32)).tolist()
        [0, 127, 127, 255]
    """
    levels = np.clip(images, 0, 1) * np.float32(255)
    return (levels + np.float32(TOLERANCE)).astype(np.uint8)
