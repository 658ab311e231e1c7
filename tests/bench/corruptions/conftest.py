import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image


@pytest.fixture(scope="session")
def photographs():
    """Return a function that makes six square crops of scikit-learn's two photographs, of a given side."""

    def at(side):
        crops = []
        for name in ("china.jpg", "flower.jpg"):
            photograph = Image.fromarray(load_sample_image(name))
            for left in (0, 106, 213):
                crop = photograph.crop((left, 0, left + 427, 427))
                crops.append(np.asarray(crop.resize((side, side), Image.Resampling.BOX)))
        return np.stack(crops)

    return at
