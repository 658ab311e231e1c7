"""Opening of the user's data, by file type or as a loader, and shuffling."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from regtta.cli.adapt_options import AdaptOptions, CollectOptions
from regtta.cli.data.arrays import open_arrays
from regtta.cli.data.formats import CSV, PARQUET, TableFormat
from regtta.cli.data.labelled_batches import ALL_BATCHES, BatchShard, Data, LabelledBatch
from regtta.cli.data.loaders import open_loader
from regtta.cli.data.tables import open_table
from regtta.cli.shared_options import split_names
from regtta.cli.user_code import is_object_reference
from regtta.errors import BatchError, MissingFileError, OptionError

_TABLES: dict[str, TableFormat] = {".csv": CSV, ".csv.gz": CSV, ".parquet": PARQUET}
_KINDS = "a .csv, .csv.gz, .parquet or .npz file, or package.module:loader"


@dataclass(frozen=True)
class DataOptions:
    """Options that describe the data.

    Attributes:
        data: a file or ``package.module:loader``.
        columns: input columns of a table, in this order; empty selects all except the target.
        target: column or columns (separated by commas), array, key or position of the labels.
        inputs: array in an NPZ archive, or key in dict batches.
        batch_size: rows per batch; loaders have their own.
    """

    data: str
    columns: tuple[str, ...] = ()
    target: str | None = None
    inputs: str | None = None
    batch_size: int | None = None

    @property
    def path(self) -> Path | None:
        """Path of the file; ``None`` for a loader."""
        path = Path(self.data)
        return None if is_object_reference(self.data) and not path.exists() else path


def open_data(options: DataOptions, *, batch_size: int, dtype: torch.dtype = torch.float32) -> Data:
    """Open the data, or raise OptionError if an option does not apply to its kind.

    Args:
        options: options of the user.
        batch_size: default number of rows per batch.
        dtype: data type of inputs read from files.
    """
    path = options.path
    if path is None:
        _reject(options.columns, "--columns", "a loader", "Select them in the loader.")
        _reject(options.batch_size, "--batch-size", "a loader", "Set it in the loader.")
        return open_loader(options.data, inputs=options.inputs, target=options.target)
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}. Expected {_KINDS}.")
    size = options.batch_size or batch_size
    if path.suffix == ".npz":
        _reject(options.columns, "--columns", "an .npz file", "Name the array with --inputs.")
        return open_arrays(path, inputs=options.inputs, target=options.target, batch_size=size, dtype=dtype)
    kind = next((kind for suffix, kind in _TABLES.items() if path.name.endswith(suffix)), None)
    if kind is None:
        raise OptionError(f"{path} is of an unsupported kind. Expected {_KINDS}.")
    _reject(options.inputs, "--inputs", "a table", "Select columns with --columns.")
    targets = split_names(options.target or "")
    return open_table(path, kind, columns=options.columns, targets=targets, batch_size=size, dtype=dtype)


def extract_data_options(options: AdaptOptions | CollectOptions) -> DataOptions:
    """Return the options of a command that concern its data."""
    return DataOptions(options.data, options.columns, options.target, options.inputs, options.batch_size)


def _reject(given: object, option: str, kind: str, instead: str) -> None:
    if given:
        raise OptionError(f"{option} does not apply to {kind}. {instead}")


@dataclass(frozen=True, eq=False)
class ShuffledData:
    """Rows of other data in shuffled order.

    Attributes:
        inputs: ``(N, ...)`` in the original order.
        targets: ``(N,)`` or ``(N, O)`` in the original order; ``None`` without labels.
        order: indices ``(N,)`` of the rows in shuffled order.
        batch_size: rows per batch.
        target_names: those of the original data.
        advice: that of the original data.
    """

    inputs: Tensor
    targets: Tensor | None
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
            yield LabelledBatch(self.inputs[rows], None if self.targets is None else self.targets[rows])


def shuffle(data: Data, seed: int, batch_size: int) -> ShuffledData:
    """Read ``data`` into memory and shuffle it with ``seed``."""
    batches = list(data.batches())
    if not batches:
        raise BatchError("The data has no rows to shuffle.")
    inputs = torch.cat([batch.inputs for batch in batches if isinstance(batch.inputs, Tensor)])
    labels = [batch.targets for batch in batches if batch.targets is not None]
    generator = torch.Generator().manual_seed(seed)
    return ShuffledData(
        inputs,
        torch.cat(labels) if labels else None,
        torch.randperm(len(inputs), generator=generator),
        batch_size,
        data.target_names,
        data.advice,
    )
