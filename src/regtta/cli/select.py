"""``regtta select``: choose a method by a few labelled samples of the target."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from regtta.cli.adapt import BATCH_SIZE
from regtta.cli.adapt_options import SelectOptions
from regtta.cli.collect import TrackedInputs
from regtta.cli.data.labelled_batches import Data
from regtta.cli.data.open_data import DataOptions, extract_data_options, open_data
from regtta.cli.data.tables import Table
from regtta.cli.predictions import Progress
from regtta.cli.shared_options import parse_key
from regtta.cli.user_code import convert_user_errors, floating_dtype, load_model
from regtta.errors import BatchError, StatisticsError
from regtta.models import Inputs, ModelInputs
from regtta.selection import Selection, candidate_name, read_candidates, select
from regtta.statistics import SourceStatistics


@dataclass(frozen=True)
class SelectReport:
    """Result of ``regtta select``, and the command that adapts with the recommended method."""

    result: Selection
    next_command: str


def select_method(options: SelectOptions, progress: Progress | None = None) -> SelectReport:
    """Choose a method by labelled samples.

    Args:
        options: the model, the unlabelled stream and the labelled samples.
        progress: callback ``(samples_seen, total)``; ``total`` is ``None`` if unknown.
    """
    if options.stats is None and options.candidates:
        _check_needs(options.candidates)
    model = load_model(options.model, options.weights, options.device)
    source = None if options.stats is None else SourceStatistics.load(options.stats)
    columns = () if source is None else source.columns
    dtype = floating_dtype(model)
    labelled = open_data(
        _labelled_options(options), batch_size=BATCH_SIZE, dtype=dtype, source_columns=columns, model=model
    )
    x, y = _read_labelled(labelled, options.labelled)
    stream = None
    if options.data is not None:
        unlabelled = _stream_options(options, options.data, labelled)
        stream = open_data(unlabelled, batch_size=BATCH_SIZE, dtype=dtype, source_columns=columns, model=model)
    tracked = TrackedInputs(labelled if stream is None else stream)
    with convert_user_errors(tracked.error_message, (labelled if stream is None else stream).advice):
        result = select(
            options.candidates or None,
            model,
            source,
            x,
            y,
            stream=None if stream is None else _report(tracked, stream.rows, progress),
            loss=options.loss.value,
            correct=options.correct.value,
            confidence=options.confidence,
            batch_size=options.batch_size or BATCH_SIZE,
            head=options.head,
            output=None if options.output is None else parse_key(options.output),
        )
    return SelectReport(result, _next_command(result, options.stats))


def _check_needs(candidates: tuple[str, ...]) -> None:
    for name, method in read_candidates(candidates).items():
        if method.needs_source:
            raise StatisticsError(
                f"{name} needs source statistics. Compute them on the source data with regtta collect, and pass "
                "--stats FILE."
            )


def _labelled_options(options: SelectOptions) -> DataOptions:
    given = extract_data_options(options, options.labelled)
    return given if options.data is None else _applicable(given, extract_data_options(options, options.data))


def _stream_options(options: SelectOptions, data: str, labelled: Data) -> DataOptions:
    """Return the options of the stream: without labels, and with the input columns of the labelled samples."""
    given = replace(extract_data_options(options, data), target=None, labels=None)
    if isinstance(labelled, Table) and given.kind == "table":
        return replace(given, columns=labelled.columns)
    if given.kind == "images":  # the column of file names is one of the labels
        given = replace(given, inputs=None)
    return _applicable(given, extract_data_options(options, options.labelled))


def _applicable(given: DataOptions, other: DataOptions) -> DataOptions:
    """Return ``given`` without options that are meant for data of another kind, that of ``other``."""
    if given.kind == other.kind:
        return given
    if given.kind != "table":
        given = replace(given, columns=())
    if given.kind == "loader":
        given = replace(given, batch_size=None)
    if given.kind == "table":
        given = replace(given, inputs=None)
    if given.kind != "images":
        given = replace(given, image_size=None, image_mean=(), image_std=(), labels=None)
    return given


def _read_labelled(data: Data, name: str) -> tuple[Inputs, Tensor]:
    """Return all labelled samples, and their labels, in memory."""
    batches = list(data.batches())
    labels = [batch.targets for batch in batches if batch.targets is not None]
    if not labels:
        raise BatchError(f"{name} has no labelled rows. Pass at least 8, better 16 to 256.")
    inputs = [batch.inputs for batch in batches]
    first = inputs[0]
    if isinstance(first, ModelInputs):
        columns = zip(*(batch.tensors for batch in inputs if isinstance(batch, ModelInputs)), strict=True)
        return first.with_tensors(tuple(torch.cat(column) for column in columns)), torch.cat(labels)
    return torch.cat([batch for batch in inputs if isinstance(batch, Tensor)]), torch.cat(labels)


def _report(inputs: TrackedInputs, rows: int | None, progress: Progress | None) -> Iterator[Inputs]:
    seen = 0
    for batch in inputs:
        yield batch
        seen += len(batch)
        if progress is not None:
            progress(seen, rows)


def _next_command(result: Selection, stats: Path | None) -> str:
    """Return the options of ``regtta adapt`` for the recommended method."""
    if not result.method.adapts:
        return "use the model as it is"
    name, _, settings = candidate_name(result.method).partition(":")
    words = ["regtta adapt", f"--method {name}"]
    words += [f"--set {setting}" for setting in settings.split(",") if setting]
    words += [f"--stats {stats}"] if stats is not None and result.method.needs_source else []
    return " ".join([*words, "..."])
