"""``regtta collect``: compute the source statistics of a model and write them to a file."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from regtta.cli.adapt_options import CollectOptions
from regtta.cli.data.labelled_batches import ALL_BATCHES, BatchShard, Data
from regtta.cli.data.open_data import extract_data_options, open_data
from regtta.cli.data.tables import Table
from regtta.cli.method_table import parse_method
from regtta.cli.outputs import check_output_files
from regtta.cli.predictions import Progress
from regtta.cli.shared_options import parse_key, split_names
from regtta.cli.torchrun import SINGLE_WORKER, WorkerGroup
from regtta.cli.user_code import convert_user_errors, floating_dtype, load_model
from regtta.errors import InvalidFileError, OptionError
from regtta.execution import sync_errors
from regtta.methods import TTT, Method
from regtta.models import Inputs, ModelInputs
from regtta.options import replace
from regtta.persistence import load_weights
from regtta.statistics import collect

COLLECT_BATCH_SIZE = 256

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CollectReport:
    """Summary of the collected statistics and the file they were written to."""

    out: Path
    samples: int
    head: str
    dimensions: int
    valid_dimensions: int
    rank: int


def collect_statistics(
    options: CollectOptions, progress: Progress | None = None, workers: WorkerGroup = SINGLE_WORKER
) -> CollectReport:
    """Collect source statistics, save them and return a summary.

    Args:
        options: the model, the data and the output file.
        progress: callback ``(samples_seen, total)``; ``total`` is ``None`` if unknown.
        workers: processes that run the command; the batches are sharded between them, and the first one saves.
    """
    size = workers.processes.size
    with sync_errors(workers.processes):
        if workers.is_first:
            data_options = extract_data_options(options)
            read = (options.weights, data_options.path, data_options.labels_path, options.branch)
            check_output_files({"--out": options.out}, inputs=read, force=options.force)
        methods = [parse_collect_method(text, options.branch) for text in options.methods]
        model = load_model(options.model, options.weights, workers.device(options.device))
        data = open_data(
            extract_data_options(options), batch_size=COLLECT_BATCH_SIZE, dtype=floating_dtype(model), model=model
        )
    if options.weights is None and workers.is_first:
        logger.warning(
            "The model is used as --model returns it. If that function does not load trained weights, pass --weights "
            "FILE."
        )
    group = workers.process_group_for(model)
    inputs = TrackedInputs(data, BatchShard(workers.processes.rank, size))
    # An iterator stays an iterator, so that collect can reject methods that need two passes.
    loader = inputs if data.reiterable else iter(inputs)

    def report_progress(seen: int) -> None:
        if progress is not None:
            progress(seen * size if data.rows is None else min(seen * size, data.rows), data.rows)

    with convert_user_errors(inputs.error_message, data.advice):
        source = collect(
            model,
            loader,
            head=options.head,
            output=None if options.output is None else parse_key(options.output),
            methods=methods,
            columns=data.columns if isinstance(data, Table) else None,
            progress=report_progress,
            process_group=group,
        )
    with sync_errors(workers.processes):
        if workers.is_first:
            source.save(options.out, overwrite=options.force)
    return CollectReport(
        options.out, source.count, source.head, source.dimensions, source.valid_dimensions, source.rank
    )


def parse_collect_method(text: str, branch: Path | None = None) -> Method:
    """Parse ``name`` or ``name:key=value,key=value`` into a method.

    Example:
        >>> parse_collect_method("feature_restoration:bins=16").bins
        16
    """
    name, _, settings = text.partition(":")
    chosen = parse_method(name, split_names(settings))
    if isinstance(chosen, TTT):
        if branch is None:
            raise OptionError("ttt needs the rotation branch trained with the model. Pass --branch FILE.")
        return replace(chosen, {"branch": _load_linear(branch)})
    return chosen


def _load_linear(path: Path) -> nn.Linear:
    weights = load_weights(path)
    weight = next((value for name, value in weights.items() if name.endswith("weight")), None)
    bias = next((value for name, value in weights.items() if name.endswith("bias")), None)
    if weight is None or weight.ndim != 2 or len(weights) > 2:
        raise InvalidFileError(f"Expected one linear layer in {path}, weight and bias, found {sorted(weights)}.")
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return layer


class TrackedInputs:
    """Iterable over the inputs of this process's batches that records the latest batch for error messages.

    Yields empty tensors in place of the batches of other processes, so that batch numbers match those of the data.
    """

    def __init__(self, data: Data, shard: BatchShard = ALL_BATCHES) -> None:
        self._data = data
        self._shard = shard
        self._index = 0
        self._shape: tuple[object, ...] = ()

    def __iter__(self) -> Iterator[Inputs]:
        """Iterate over the inputs ``(B, ...)`` of each batch."""
        others, empty = self._shard.rank, ModelInputs((torch.empty(0),))
        for number, batch in enumerate(self._data.batches(self._shard)):
            for _ in range(others):
                yield empty
            self._index, self._shape = self._shard.rank + number * self._shard.size, tuple(batch.inputs.shape)
            yield batch.inputs
            others = self._shard.size - 1

    def error_message(self) -> str:
        """Return the error message for a failure of the model on the latest batch."""
        return f"The model cannot take batch {self._index}, of shape {self._shape}"
