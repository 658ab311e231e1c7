"""The data named on the command line: a file, or a loader in Python."""

from dataclasses import dataclass
from pathlib import Path

import torch

from regtta.commands.data.arrays import open_arrays
from regtta.commands.data.batches import Data
from regtta.commands.data.formats import CSV, PARQUET, Format
from regtta.commands.data.loaders import open_loader
from regtta.commands.data.tables import open_table
from regtta.commands.imports import is_import_name
from regtta.commands.options.adapt import AdaptOptions
from regtta.commands.options.collect import CollectOptions
from regtta.commands.options.parsing import split_names
from regtta.errors import MissingFileError, OptionError

_TABLES: dict[str, Format] = {".csv": CSV, ".csv.gz": CSV, ".parquet": PARQUET}
_KINDS = "a .csv, .csv.gz, .parquet or .npz file, or package.module:loader"


@dataclass(frozen=True)
class DataOptions:
    """What the user said about the data.

    Attributes:
        data: a file or ``package.module:loader``.
        columns: of a table, taken as inputs in this order; empty takes all but the target.
        target: column or columns (with commas), array, key or position of the labels.
        inputs: array in an NPZ archive, or key in dict batches.
        batch_size: rows a batch; a loader brings its own.
    """

    data: str
    columns: tuple[str, ...] = ()
    target: str | None = None
    inputs: str | None = None
    batch_size: int | None = None

    @property
    def path(self) -> Path | None:
        """The file, where it is one."""
        path = Path(self.data)
        return None if is_import_name(self.data) and not path.exists() else path


def open_data(options: DataOptions, *, batch_size: int, dtype: torch.dtype = torch.float32) -> Data:
    """The data, after checking that every option given has a meaning for its kind.

    Args:
        options: what the user said.
        batch_size: rows a batch where the user did not say.
        dtype: of the inputs out of files.
    """
    path = options.path
    if path is None:
        _refuse(options.columns, "--columns", "a loader", "Select them in the loader.")
        _refuse(options.batch_size, "--batch-size", "a loader", "It brings batches of its own.")
        return open_loader(options.data, inputs=options.inputs, target=options.target)
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}. Data is {_KINDS}.")
    size = options.batch_size or batch_size
    if path.suffix == ".npz":
        _refuse(options.columns, "--columns", "an .npz file", "Name the array with --inputs.")
        return open_arrays(path, inputs=options.inputs, target=options.target, batch_size=size, dtype=dtype)
    kind = next((kind for ending, kind in _TABLES.items() if path.name.endswith(ending)), None)
    if kind is None:
        raise OptionError(f"{path} is of no kind that can be read. Data is {_KINDS}.")
    _refuse(options.inputs, "--inputs", "a table", "Pick columns with --columns.")
    targets = split_names(options.target or "")
    return open_table(path, kind, columns=options.columns, targets=targets, batch_size=size, dtype=dtype)


def data_options(options: AdaptOptions | CollectOptions) -> DataOptions:
    """Return the options of a command that concern its data."""
    return DataOptions(options.data, options.columns, options.target, options.inputs, options.batch_size)


def _refuse(given: object, option: str, kind: str, instead: str) -> None:
    if given:
        raise OptionError(f"{option} has no meaning for {kind}. {instead}")
