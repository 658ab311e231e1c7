"""Folders of images, decoded batch by batch, and the CSV file of their labels."""

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regtta.cli.data.formats import csv_frames, csv_header
from regtta.cli.data.labelled_batches import ALL_BATCHES, BatchShard, LabelledBatch
from regtta.cli.data.tables import check_column, to_float64
from regtta.errors import BatchError, FileError, MismatchError, MissingFileError, OptionError
from regtta.optional_imports import import_optional
from regtta.options import check_positive_int, list_names
from regtta.persistence import convert_errors

if TYPE_CHECKING:
    from PIL import Image as PillowImage

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LABELS_FILE = "labels.csv"
# Formats that Pillow may try on a file of any of the suffixes; some of its others start programs.
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF")
_MAX_THREADS = 8
_LABEL_ROWS = 8192
_MAX_RESIZED_PIXELS = 2**27


@dataclass(frozen=True)
class ImageTransform:
    """Preprocessing of images: resize, centre crop, normalise.

    Attributes:
        size: side S of the square that an image is resized to cover and then cropped to, about its centre.
        mean: mean of red, green and blue, subtracted from values in [0, 1].
        std: standard deviation of red, green and blue, by which the differences are divided.
    """

    size: int
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        check_positive_int("--image-size", self.size)
        for option, values, least in (("--image-mean", self.mean, -np.inf), ("--image-std", self.std, 0.0)):
            if len(values) != 3 or not all(least < value < np.inf for value in values):
                kind = "three numbers above 0" if least == 0 else "three numbers"
                found = ",".join(map(str, values))
                raise OptionError(f"Expected {option} to be {kind}, for red, green and blue, found {found}.")

    def read(self, path: Path) -> NDArray[np.uint8]:
        """Decode the image in ``path`` and return it resized and cropped, ``(S, S, 3)``."""
        from PIL import Image

        with (
            convert_errors(
                lambda why: FileError(f"Could not read the image {path}: {why}. Replace the file or remove it.")
            ),
            Image.open(path, formats=_FORMATS) as opened,
        ):
            return np.array(_resize_to_cover(_to_rgb(opened, path), self.size))

    def normalize(self, images: NDArray[np.uint8], dtype: torch.dtype) -> Tensor:
        """Return images ``(B, S, S, 3)`` as inputs ``(B, 3, S, S)``."""
        exact = dtype if dtype in (torch.float32, torch.float64) else torch.float32
        values = torch.from_numpy(images).permute(0, 3, 1, 2).to(exact, memory_format=torch.contiguous_format)
        mean, std = (torch.tensor(each, dtype=exact)[:, None, None] for each in (self.mean, self.std))
        return values.div_(255).sub_(mean).div_(std).to(dtype)


@dataclass(frozen=True, eq=False)
class Images:
    """Batches of the images of a folder, of which one batch at a time is held in memory.

    Attributes:
        folder: path of the folder.
        names: path of each image relative to the folder, with ``/`` between folders, sorted.
        transform: preprocessing.
        batch_size: images per batch.
        dtype: data type of the inputs; labels are float64.
        targets: labels ``(N,)`` or ``(N, O)`` in the order of ``names``; ``None`` without labels.
        target_names: label columns.
    """

    folder: Path
    names: tuple[str, ...]
    transform: ImageTransform
    batch_size: int
    dtype: torch.dtype = torch.float32
    targets: Tensor | None = None
    target_names: tuple[str, ...] = ()
    reiterable: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        """Number of images N."""
        return len(self.names)

    @property
    def advice(self) -> str:
        """Advice that names the shape of the inputs."""
        size = self.transform.size
        return f"Images are read as (B, 3, {size}, {size}), red, green and blue. Change the size with --image-size."

    def batches(self, shard: BatchShard = ALL_BATCHES) -> Iterator[LabelledBatch]:
        """Iterate over inputs ``(B, 3, S, S)`` and labels; a process decodes the images of its shard only."""
        for rows in shard.select(torch.split(torch.arange(self.rows), self.batch_size)):
            yield self.take(rows)

    def take(self, rows: Tensor) -> LabelledBatch:
        """Return the images at indices ``(B,)``, with their labels."""
        from PIL import Image

        paths = [self.folder / self.names[row] for row in rows.tolist()]
        with warnings.catch_warnings(), ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
            # Images so large that they are probably attacks on the memory are errors, which name the file.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            decoded = np.stack(list(pool.map(self.transform.read, paths)))
        return LabelledBatch(
            self.transform.normalize(decoded, self.dtype), None if self.targets is None else self.targets[rows]
        )

    def with_labels(self, path: Path, *, column: str | None, targets: Sequence[str]) -> "Images":
        """Return the images with the labels of a CSV file.

        Args:
            path: file with one row per image.
            column: column of the names of the images, relative to the folder; ``None`` for the first.
            targets: label columns.
        """
        names, labels = _read_labels(path, column, targets)
        rows = self._match_names(path, names)
        values = torch.from_numpy(labels[rows])
        return replace(self, targets=values.squeeze(1), target_names=tuple(targets))

    def _match_names(self, path: Path, names: Sequence[str]) -> list[int]:
        """Return the row of the labels of each image; raise unless each image has exactly one row."""
        known = set(self.names)
        rows: dict[str, int] = {}
        for row, written in enumerate(names):
            name = written if written in known else PurePosixPath(written.replace("\\", "/")).as_posix()
            if name in rows:
                raise MismatchError(
                    f"{path} names the image {name!r} twice, in rows {rows[name] + 1} and {row + 1}. Keep one of them."
                )
            rows[name] = row
        absent = [name for name in rows if name not in known]
        if absent:
            raise MismatchError(
                f"{path} names {len(absent)} images that {self.folder} does not have: {list_names(absent, 3)}. "
                f"Expected paths relative to the folder, such as {self.names[0]}. Remove these rows, or add the images."
            )
        unlabelled = [name for name in self.names if name not in rows]
        if unlabelled:
            raise MismatchError(
                f"{path} has no row for {len(unlabelled)} images of {self.folder}: {list_names(unlabelled, 3)}. Add "
                "rows for them; the label may be empty."
            )
        return [rows[name] for name in self.names]


def open_images(folder: Path, transform: ImageTransform, *, batch_size: int, dtype: torch.dtype) -> Images:
    """Open all images of ``folder`` and its subfolders, sorted by their path; no image is decoded."""
    import_optional("PIL.Image", "cli", "A folder of images")
    found = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    names = tuple(sorted(path.relative_to(folder).as_posix() for path in found))
    if not names:
        raise BatchError(f"{folder} has no images. Expected files that end in {', '.join(IMAGE_SUFFIXES)}.")
    return Images(folder, names, transform, batch_size, dtype)


def _to_rgb(image: "PillowImage.Image", path: Path) -> "PillowImage.Image":
    """Return an image of 8 bits per channel as RGB; raise a BatchError for images of wider values."""
    if image.mode.startswith(("I", "F")):  # conversion would clip their values to 255
        raise BatchError(
            f"{path} has values of more than 8 bits (Pillow's mode {image.mode}), whose scale is not known. Convert it "
            "to 8 bits, or read it with a loader of your own."
        )
    # Palettes with transparency have to be converted in two steps.
    opaque = image.convert("RGBA") if "transparency" in image.info else image
    return opaque.convert("RGB")


def _resize_to_cover(image: "PillowImage.Image", size: int) -> "PillowImage.Image":
    """Resize the shorter side of an image to ``size`` and return its centre ``size × size``, as torchvision does."""
    from PIL import Image

    width, height = (int(size * side / min(image.size)) for side in image.size)
    if width * height > _MAX_RESIZED_PIXELS:
        raise ValueError(f"it is {image.width}×{image.height}, too elongated to be resized to {width}×{height}")
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), Image.Resampling.BICUBIC)  # Pillow's filters are antialiased
    return resized.crop((left, top, left + size, top + size))


def _read_labels(path: Path, column: str | None, targets: Sequence[str]) -> tuple[list[str], NDArray[np.float64]]:
    """Return the names of the images and their labels ``(N, O)``, row by row of a CSV file."""
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}. Expected a .csv file with the names of images and labels.")
    if not path.name.endswith((".csv", ".csv.gz")):
        raise OptionError(f"Expected --labels to end in .csv or .csv.gz, found {path}.")
    header = csv_header(path)
    column = column or header.columns[0]
    for name in (column, *targets):
        check_column(name, header.columns, path)
    if len({column, *targets}) < 1 + len(targets):
        raise OptionError(
            f"The column of image names in {path} is {column!r}, and --target {','.join(targets)} names a column "
            "twice. Name each column once; --inputs names the column of image names."
        )
    names: list[str] = []
    labels = [np.empty((0, len(targets)))]
    for frame in csv_frames(path, (column, *targets), _LABEL_ROWS, texts=(column,)):
        if frame[column].isna().any():
            row = len(names) + int(frame[column].isna().to_numpy().argmax()) + 1
            raise BatchError(f"Row {row} of {path} has no image name in column {column!r}. Fill it in, or remove it.")
        labels.append(to_float64(frame[list(targets)], path, len(names), "Convert it to numbers."))
        names += frame[column].tolist()
    return names, np.concatenate(labels)
