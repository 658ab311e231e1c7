"""Opening of the user's data, by file type or as a loader, and shuffling."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from regtta.cli.adapt_options import AdaptOptions, CheckOptions, CollectOptions, SelectOptions
from regtta.cli.data.arrays import open_arrays
from regtta.cli.data.formats import CSV, PARQUET, TableFormat
from regtta.cli.data.images import IMAGENET_MEAN, IMAGENET_STD, LABELS_FILE, Images, ImageTransform, open_images
from regtta.cli.data.labelled_batches import ALL_BATCHES, BatchShard, Data, LabelledBatch
from regtta.cli.data.loaders import open_loader
from regtta.cli.data.tables import open_table
from regtta.cli.shared_options import parse_selection, split_names
from regtta.cli.user_code import is_object_reference
from regtta.errors import BatchError, MissingFileError, OptionError
from regtta.models import BatchReader

_TABLES: dict[str, TableFormat] = {".csv": CSV, ".csv.gz": CSV, ".parquet": PARQUET}
_KINDS = "a .csv, .csv.gz, .parquet or .npz file, a folder of images, or package.module:loader"


@dataclass(frozen=True)
class DataOptions:
    """Options that describe the data.

    Attributes:
        data: a file, a folder of images, or ``package.module:loader``.
        columns: input columns of a table, in this order; empty selects all except the target.
        target: column or columns (separated by commas), array, key or position of the labels.
        inputs: array in an NPZ archive, keys or positions in the batches of a loader, or column of file names in the
            labels of images.
        batch_size: rows per batch; loaders have their own.
        image_size: side of the square that images are resized to.
        image_mean: mean of each channel that is subtracted from images; empty for that of ImageNet.
        image_std: standard deviation of each channel that images are divided by; empty for that of ImageNet.
        labels: CSV file of the labels of images; ``None`` for ``labels.csv`` in their folder.
    """

    data: str
    columns: tuple[str, ...] = ()
    target: str | None = None
    inputs: str | None = None
    batch_size: int | None = None
    image_size: int | None = None
    image_mean: tuple[float, ...] = ()
    image_std: tuple[float, ...] = ()
    labels: Path | None = None

    @property
    def path(self) -> Path | None:
        """Path of the file or folder; ``None`` for a loader."""
        path = Path(self.data)
        return None if is_object_reference(self.data) and not path.exists() else path

    @property
    def kind(self) -> Literal["loader", "images", "arrays", "table"]:
        """Kind of the data, by its name."""
        path = self.path
        if path is None:
            return "loader"
        return "images" if path.is_dir() else "arrays" if path.suffix == ".npz" else "table"

    @property
    def labels_path(self) -> Path | None:
        """File of the labels of images: the one that is named, or ``labels.csv`` in the folder if it exists."""
        path = self.path
        if self.labels is not None or path is None:
            return self.labels
        found = path / LABELS_FILE
        return found if found.is_file() else None


def open_data(
    options: DataOptions,
    *,
    batch_size: int,
    dtype: torch.dtype = torch.float32,
    source_columns: tuple[str, ...] = (),
    model: nn.Module | None = None,
) -> Data:
    """Open the data, or raise OptionError if an option does not apply to its kind.

    Args:
        options: options of the user.
        batch_size: default number of rows per batch.
        dtype: data type of inputs read from files.
        source_columns: input columns of the source statistics, which a table must have; empty if unknown.
        model: the model, whose parameters decide which entries of a loader's batches it takes; ``None`` for a model
            with one input.
    """
    path = options.path
    if path is not None and path.is_dir():
        return _open_folder(path, options, batch_size=options.batch_size or batch_size, dtype=dtype)
    if path is None:
        _reject_image_options(options, "a loader")
        _reject(options.columns, "--columns", "a loader", "Select them in the loader.")
        _reject(options.batch_size, "--batch-size", "a loader", "Set it in the loader.")
        read = BatchReader(model or nn.Identity(), parse_selection(options.inputs))
        return open_loader(options.data, read=read, target=options.target)
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}. Expected {_KINDS}.")
    _reject_image_options(options, "a file")
    size = options.batch_size or batch_size
    if path.suffix == ".npz":
        _reject(options.columns, "--columns", "an .npz file", "Name the array with --inputs.")
        return open_arrays(path, inputs=options.inputs, target=options.target, batch_size=size, dtype=dtype)
    kind = next((kind for suffix, kind in _TABLES.items() if path.name.endswith(suffix)), None)
    if kind is None:
        raise OptionError(f"{path} is of an unsupported kind. Expected {_KINDS}.")
    _reject(options.inputs, "--inputs", "a table", "Select columns with --columns.")
    targets = split_names(options.target or "")
    return open_table(
        path,
        kind,
        columns=options.columns,
        targets=targets,
        batch_size=size,
        dtype=dtype,
        source_columns=source_columns,
    )


def _open_folder(path: Path, options: DataOptions, *, batch_size: int, dtype: torch.dtype) -> Images:
    _reject(options.columns, "--columns", "a folder of images", "All channels are inputs.")
    if options.image_size is None:
        raise OptionError(f"{path} is a folder of images. Pass --image-size N, the size the model takes, such as 224.")
    if options.labels is not None and options.target is None:
        raise OptionError("--labels needs the name of the column of labels. Pass --target NAME.")
    transform = ImageTransform(
        options.image_size, options.image_mean or IMAGENET_MEAN, options.image_std or IMAGENET_STD
    )
    images = open_images(path, transform, batch_size=batch_size, dtype=dtype)
    targets = split_names(options.target or "")
    if not targets:
        _reject(options.inputs, "--inputs", "images without labels", "Name the labels with --target.")
        return images
    if options.labels_path is None:
        raise OptionError(f"{path} has no {LABELS_FILE} with the labels of --target. Pass --labels FILE.")
    return images.with_labels(options.labels_path, column=options.inputs, targets=targets)


def extract_data_options(
    options: AdaptOptions | CheckOptions | CollectOptions | SelectOptions, data: str | None = None
) -> DataOptions:
    """Return the options of a command that concern its data, or those that describe ``data`` if it is given."""
    given = {item.name: getattr(options, item.name) for item in fields(DataOptions)}
    return DataOptions(**(given if data is None else given | {"data": data}))


def _reject_image_options(options: DataOptions, kind: str) -> None:
    given = {
        "--image-size": options.image_size,
        "--image-mean": options.image_mean,
        "--image-std": options.image_std,
        "--labels": options.labels,
    }
    for option, value in given.items():
        _reject(value, option, kind, "It is for a folder of images.")


def _reject(given: object, option: str, kind: str, instead: str) -> None:
    if given:
        raise OptionError(f"{option} does not apply to {kind}. {instead}")


class RowAccess(Protocol):
    """Data whose rows can be read in any order."""

    def take(self, rows: Tensor) -> LabelledBatch:
        """Return the rows at indices ``(B,)``."""


@dataclass(frozen=True, eq=False)
class _RowsInMemory:
    """Inputs ``(N, ...)`` and, if available, labels ``(N,)`` or ``(N, O)``."""

    inputs: Tensor
    targets: Tensor | None

    def take(self, rows: Tensor) -> LabelledBatch:
        """Return the rows at indices ``(B,)``."""
        return LabelledBatch(self.inputs[rows], None if self.targets is None else self.targets[rows])


@dataclass(frozen=True, eq=False)
class ShuffledData:
    """Rows of other data in shuffled order.

    Attributes:
        source: rows in the original order.
        order: indices ``(N,)`` of the rows in shuffled order.
        batch_size: rows per batch.
        target_names: those of the original data.
        advice: that of the original data.
    """

    source: RowAccess
    order: Tensor
    batch_size: int
    target_names: tuple[str, ...]
    advice: str
    reiterable: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        """Number of rows N."""
        return len(self.order)

    def batches(self, shard: BatchShard = ALL_BATCHES) -> Iterator[LabelledBatch]:
        """Iterate over batches in shuffled order."""
        for rows in shard.select(torch.split(self.order, self.batch_size)):
            yield self.source.take(rows)


def shuffle(data: Data, seed: int, batch_size: int) -> ShuffledData:
    """Shuffle ``data`` with ``seed``; images are read as they are visited, other data is read into memory."""
    source, rows = (data, data.rows) if isinstance(data, Images) else _read_rows(data)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return ShuffledData(source, order, batch_size, data.target_names, data.advice)


def _read_rows(data: Data) -> tuple[_RowsInMemory, int]:
    batches = list(data.batches())
    if not batches:
        raise BatchError("The data has no rows to shuffle.")
    inputs = torch.cat([batch.inputs for batch in batches if isinstance(batch.inputs, Tensor)])
    labels = [batch.targets for batch in batches if batch.targets is not None]
    return _RowsInMemory(inputs, torch.cat(labels) if labels else None), len(inputs)
