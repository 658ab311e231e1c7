"""Random generators per image, independent of the batch."""

from hashlib import blake2b

import numpy as np


def generator(seed: int, name: str, severity: int, index: int) -> np.random.Generator:
    """Return the generator of image ``index``: Philox with the 128-bit BLAKE2b digest of the four arguments as its key.

    It depends on nothing else, so an image is corrupted the same way at any position of any batch.

    Example:
        >>> generator(0, "fog", 5, 7).random() == generator(0, "fog", 5, 7).random()
        True
        >>> generator(0, "fog", 5, 7).random() == generator(0, "fog", 5, 8).random()
        False
    """
    text = f"{seed}/{name}/{severity}/{index}"
    key = int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))
