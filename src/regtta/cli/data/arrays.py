"""NPZ archives with an array of inputs and, optionally, an array of labels."""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from regtta.cli.data.labelled_batches import ALL_BATCHES, BatchShard, LabelledBatch
from regtta.errors import BatchError, FileError, OptionError
from regtta.options import did_you_mean
from regtta.persistence import convert_errors, npz_array, npz_names

DEFAULT_INPUTS = "x"


@dataclass(frozen=True, eq=False)
class Arrays:
    """Batches of an array in memory, with samples along the first axis.

    Attributes:
        path: path of the archive.
        inputs: ``(N, ...)``.
        targets: ``(N,)`` or ``(N, O)``; ``None`` without labels.
        target_names: name of the labels' array.
        batch_size: samples per batch.
        dtype: data type that inputs, integers included, are converted to; labels are float64.
    """

    path: Path
    inputs: NDArray[np.generic]
    targets: NDArray[np.generic] | None
    target_names: tuple[str, ...]
    batch_size: int
    dtype: torch.dtype = torch.float32
    reiterable: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        """Number of samples N."""
        return len(self.inputs)

    @property
    def advice(self) -> str:
        """Advice that names the shape of the inputs."""
        return (
            f"The inputs in {self.path} have shape {self.inputs.shape}, one sample along the first axis. "
            "Name another array with --inputs."
        )

    def batches(self, shard: BatchShard = ALL_BATCHES) -> Iterator[LabelledBatch]:
        """Iterate over batches of inputs ``(B, ...)`` and labels."""
        for start in shard.select(range(0, len(self.inputs), self.batch_size)):
            part = slice(start, start + self.batch_size)
            yield LabelledBatch(
                _to_tensor(self.inputs[part]).to(self.dtype),
                None if self.targets is None else _to_tensor(self.targets[part]),
            )


def open_arrays(path: Path, *, inputs: str | None, target: str | None, batch_size: int, dtype: torch.dtype) -> Arrays:
    """Open the array ``inputs`` (default ``x``) of an archive as batches, with the array ``target`` as labels."""
    with (
        convert_errors(
            lambda why: FileError(f"Could not read {path} as plain arrays: {why}. Save it with numpy.savez.")
        ),
        zipfile.ZipFile(path) as archive,
    ):
        x = _read_array(archive, inputs or DEFAULT_INPUTS, path, "--inputs")
        y = None if target is None else _read_array(archive, target, path, "--target")
    if y is not None and len(y) != len(x):
        raise BatchError(f"{path} holds {len(x)} samples but {len(y)} labels in {target!r}.")
    return Arrays(path, x, y, () if target is None else (target,), batch_size, dtype)


def _read_array(archive: zipfile.ZipFile, name: str, path: Path, option: str) -> NDArray[np.generic]:
    names = list(npz_names(archive))
    if name not in names:
        hint = did_you_mean(name, names)
        raise OptionError(f"{path} has no array {name!r}; it has {names}. Pass {option} NAME.{hint}")
    values = npz_array(archive, name)
    if values.dtype.kind not in "fiub":
        raise BatchError(f"Array {name!r} of {path} is not numeric: it holds {values.dtype}.")
    if values.ndim == 0:
        raise BatchError(f"Expected array {name!r} of {path} to have shape (N, ...), found a single number.")
    return values


def _to_tensor(values: NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float64))
