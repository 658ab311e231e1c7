"""UTKFace: age estimation from faces. The shift, a corruption of the 224×224 images, is applied elsewhere.

The age is the first field of the file name ``age_gender_race_date.jpg.chip.jpg``; other fields may be missing. Files
without an age or without the suffix of an image are skipped and reported.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regtta.errors import FileError, InvalidFileError
from regtta_bench.data.catalogue import find_path, missing_dataset_error
from regtta_bench.data.domains import split_indices
from regtta_bench.data.pictures import CROPPED_SIDE, MAX_PICTURE_BYTES, RESIZED_SIDE, Pictures, decode_all

UTKFACE_VALIDATION_SHARE = 0.2
_NAME = re.compile(r"([0-9]{1,3})_.*\.(jpg|jpeg|png)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class FaceFiles:
    """Index of the faces of a folder, without the images.

    Attributes:
        files: paths, sorted by name.
        ages: age of each face in years.
        skipped: names of all other entries of the folder.
    """

    files: tuple[Path, ...]
    ages: tuple[int, ...]
    skipped: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def take(self, rows: Tensor) -> "FaceFiles":
        """Return the faces at the indices ``rows``, in their order."""
        chosen = rows.tolist()
        return FaceFiles(
            tuple(self.files[row] for row in chosen), tuple(self.ages[row] for row in chosen), self.skipped
        )

    def read(self, side: int = RESIZED_SIDE) -> Pictures:
        """Return images (N, side, side, 3), cropped from the centre of each at 256×256, and ages (N, 1)."""
        images = decode_all(_contents(self.files), len(self.files), side=side)
        return Pictures(images, torch.tensor(self.ages, dtype=torch.float32).unsqueeze(1))


@dataclass(frozen=True, eq=False)
class UTKFace:
    """All faces with their images.

    Attributes:
        train: training pictures, (N, 256, 256, 3), to be cropped at random or in the centre.
        validation: held-out pictures, (N, 224, 224, 3); after corruption they are the target.
        skipped: names of files that have no age or are not images.
    """

    train: Pictures
    validation: Pictures
    skipped: tuple[str, ...]


def utkface(folder: Path, *, seed: int) -> UTKFace:
    """Read all faces as uint8 (about 4.5 GB); ``seed`` determines the fifth that is held out."""
    faces = utkface_files(folder)
    train, validation = split_indices(len(faces), UTKFACE_VALIDATION_SHARE, seed)
    return UTKFace(faces.take(train).read(RESIZED_SIDE), faces.take(validation).read(CROPPED_SIDE), faces.skipped)


def utkface_files(folder: Path) -> FaceFiles:
    """Index the faces in the folder of data sets, without reading the images."""
    faces = find_path(folder, "utkface")
    if not faces.is_dir():
        raise InvalidFileError(f"Expected a folder of images at {faces}, found a file. Unpack it there.")
    files, ages, skipped = [], [], []
    for path in sorted(faces.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            skipped.append(path.name)
        else:
            files.append(path)
            ages.append(int(match[1]))
    if not files:
        raise missing_dataset_error(
            "utkface",
            folder,
            faces,
            found=f"{faces} has no image named age_gender_race_date.jpg.chip.jpg ({len(skipped)} other names).",
        )
    return FaceFiles(tuple(files), tuple(ages), tuple(skipped))


def _contents(files: tuple[Path, ...]) -> Iterator[tuple[int, str, bytes]]:
    for position, path in enumerate(files):
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_PICTURE_BYTES + 1)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error}.") from error
        yield position, str(path), raw
