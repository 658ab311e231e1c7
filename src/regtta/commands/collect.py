"""``regtta collect``: source statistics of a model over its source data, into a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regtta.collecting import collect
from regtta.commands.data.batches import Data
from regtta.commands.data.opening import DataOptions, open_data
from regtta.commands.explaining import explaining
from regtta.commands.models import floating_dtype, load_model
from regtta.commands.outputs import check_outputs
from regtta.commands.passes import Progress

BATCH_SIZE = 256


@dataclass(frozen=True)
class CollectOptions:
    """What to collect and where to.

    Attributes:
        model: ``package.module:factory``.
        data: the source data; labels in it are left out.
        out: the file to write.
        weights: state dict to load first.
        head: name of the head, else found.
        device: where to run, else where the factory put the model.
        force: replace ``out`` if it exists.
    """

    model: str
    data: DataOptions
    out: Path
    weights: Path | None = None
    head: str | None = None
    device: str | None = None
    force: bool = False


@dataclass(frozen=True)
class CollectReport:
    """What was collected, and the file it went into."""

    out: Path
    samples: int
    head: str
    dimensions: int
    valid_dimensions: int
    rank: int


def collect_statistics(options: CollectOptions, progress: Progress | None = None) -> CollectReport:
    """Collect and save; ``progress`` is told the samples seen and, where known, how many there are."""
    check_outputs({"--out": options.out}, inputs=(options.weights, options.data.path), force=options.force)
    model = load_model(options.model, options.weights, options.device)
    data = open_data(options.data, batch_size=BATCH_SIZE, dtype=floating_dtype(model))
    inputs = WatchedInputs(data)

    def tell(seen: int) -> None:
        if progress is not None:
            progress(seen, data.rows)

    with explaining(inputs.complaint, data.advice):
        source = collect(model, inputs, head=options.head, progress=tell)
    source.save(options.out, overwrite=options.force)
    return CollectReport(
        options.out, source.count, source.head, source.dimensions, source.valid_dimensions, source.rank
    )


class WatchedInputs:
    """The inputs of some data, one pass, remembering which batch came last."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._index = 0
        self._shape: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Tensor]:
        """The inputs (B, ...) of each batch."""
        for index, batch in enumerate(self._data.batches()):
            self._index, self._shape = index, tuple(batch.inputs.shape)
            yield batch.inputs

    def complaint(self) -> str:
        """What failed, when the model did."""
        return f"The model cannot take batch {self._index}, of shape {self._shape}"
