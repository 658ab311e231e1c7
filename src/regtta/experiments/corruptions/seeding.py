"""Randomness that belongs to an image, not to the batch it comes in."""

from hashlib import blake2b

import numpy as np


def generator(seed: int, name: str, severity: int, index: int) -> np.random.Generator:
    """The generator of image ``index``: Philox, its 128-bit key the BLAKE2b digest of the four arguments.

    Nothing else enters, so that an image is corrupted the same way in any batch, at any place in it.

    Example:
        >>> generator(0, "fog", 5, 7).random() == generator(0, "fog", 5, 7).random()
        True
        >>> generator(0, "fog", 5, 7).random() == generator(0, "fog", 5, 8).random()
        False
    """
    text = f"{seed}/{name}/{severity}/{index}"
    key = int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))
