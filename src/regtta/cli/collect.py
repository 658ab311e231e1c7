"""``regtta collect``: compute the source statistics of a model and write them to a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regtta.cli.adapt_options import CollectOptions
from regtta.cli.data.labelled_batches import ALL, Data, Deal
from regtta.cli.data.opening import data_options, open_data
from regtta.cli.method_table import chosen_method
from regtta.cli.outputs import check_outputs
from regtta.cli.predictions import Progress
from regtta.cli.shared_options import split_names
from regtta.cli.torchrun import ONE, Team
from regtta.cli.user_code import explaining, floating_dtype, load_model
from regtta.errors import InvalidFileError, OptionError
from regtta.execution import sync_errors
from regtta.methods import TTT, Method
from regtta.options import replace
from regtta.persistence import load_weights
from regtta.statistics import collect

BATCH_SIZE = 256


@dataclass(frozen=True)
class CollectReport:
    """Summary of the collected statistics and the file they were written to."""

    out: Path
    samples: int
    head: str
    dimensions: int
    valid_dimensions: int
    rank: int


def collect_statistics(options: CollectOptions, progress: Progress | None = None, team: Team = ONE) -> CollectReport:
    """Collect source statistics, save them and return a summary.

    Args:
        options: the model, the data and the output file.
        progress: callback ``(samples_seen, total)``; ``total`` is ``None`` if unknown.
        team: process group; the batches are sharded between its processes, and the first one saves.
    """
    size = team.processes.size
    with sync_errors(team.processes):
        if team.first:
            read = (options.weights, data_options(options).path, options.branch)
            check_outputs({"--out": options.out}, inputs=read, force=options.force)
        methods = [gathering_method(text, options.branch) for text in options.methods]
        model = load_model(options.model, options.weights, team.device(options.device))
        data = open_data(data_options(options), batch_size=BATCH_SIZE, dtype=floating_dtype(model))
    group = team.group_for(model)
    inputs = WatchedInputs(data, Deal(team.processes.rank, size))
    # An iterator stays an iterator, so that collect can reject methods that need two passes.
    loader = inputs if data.again else iter(inputs)

    def report_progress(seen: int) -> None:
        if progress is not None:
            progress(seen * size if data.rows is None else min(seen * size, data.rows), data.rows)

    with explaining(inputs.complaint, data.advice):
        source = collect(
            model, loader, head=options.head, methods=methods, progress=report_progress, process_group=group
        )
    with sync_errors(team.processes):
        if team.first:
            source.save(options.out, overwrite=options.force)
    return CollectReport(
        options.out, source.count, source.head, source.dimensions, source.valid_dimensions, source.rank
    )


def gathering_method(text: str, branch: Path | None = None) -> Method:
    """Parse ``name`` or ``name:key=value,key=value`` into a method.

    Example:
        >>> gathering_method("feature_restoration:bins=16").bins
        16
    """
    name, _, settings = text.partition(":")
    chosen = chosen_method(name, split_names(settings))
    if isinstance(chosen, TTT):
        if branch is None:
            raise OptionError("ttt needs the rotation branch trained with the model. Pass --branch FILE.")
        return replace(chosen, {"branch": _linear(branch)})
    return chosen


def _linear(path: Path) -> nn.Linear:
    weights = load_weights(path)
    weight = next((value for name, value in weights.items() if name.endswith("weight")), None)
    bias = next((value for name, value in weights.items() if name.endswith("bias")), None)
    if weight is None or weight.ndim != 2 or len(weights) > 2:
        raise InvalidFileError(f"Expected one linear layer in {path}, weight and bias, found {sorted(weights)}.")
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return layer


class WatchedInputs:
    """Iterable over the inputs of this process's batches that records the latest batch for error messages.

    Yields empty tensors in place of the batches of other processes, so that batch numbers match those of the data.
    """

    def __init__(self, data: Data, deal: Deal = ALL) -> None:
        self._data = data
        self._deal = deal
        self._index = 0
        self._shape: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Tensor]:
        """Iterate over the inputs ``(B, ...)`` of each batch."""
        others, nothing = self._deal.rank, torch.empty(0)
        for number, batch in enumerate(self._data.batches(self._deal)):
            for _ in range(others):
                yield nothing
            self._index, self._shape = self._deal.rank + number * self._deal.size, tuple(batch.inputs.shape)
            yield batch.inputs
            others = self._deal.size - 1

    def complaint(self) -> str:
        """Return the error message for a failure of the model on the latest batch."""
        return f"The model cannot take batch {self._index}, of shape {self._shape}"
