"""A user's folder of photographs: files of several formats in subfolders, a model for them, and labels."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

MODULE = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, 6), nn.ReLU(), nn.Linear(6, 1),
    )


def make_double():
    return make().double()
"""

SIZE = 8
# Sorted by path: capital letters come first.
NAMES = (
    "B/upper.JPG",
    "a/one.png",
    "a/two.jpeg",
    "b.webp",
    "c/d/deep.bmp",
    "c/scan.tif",
    "e.tiff",
    *(f"photo{number:02d}.png" for number in range(9)),
)
MODEL = ["--model", "imagemodel:make"]
FOLDER = ["--data", "photos", "--image-size", str(SIZE)]


def make_photos(folder: Path, name: str = "photos", *, brightness: int = 120) -> pd.DataFrame:
    """Write images of different sizes, ``labels.csv`` and ``imagemodel.py``; return the labels."""
    (folder / "imagemodel.py").write_text(MODULE)
    generator = np.random.default_rng(brightness)
    labels = []
    for number, path in enumerate(NAMES):
        target = folder / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        height, width = 10 + number, 25 - number
        noise = generator.integers(-60, 60, size=(height, width, 3))
        Image.fromarray((brightness + 6 * number + noise).clip(0, 255).astype(np.uint8)).save(target)
        labels.append((path, float(number), number / 2))
    table = pd.DataFrame(labels, columns=["file", "age", "size"])
    table[::-1].to_csv(folder / name / "labels.csv", index=False)
    return table
