"""``regtta adapt``: adapt a model to target data, and write what came of it."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from regtta.adapter import Adapter
from regtta.commands.checking import check_files, check_labels, check_passes, check_rows
from regtta.commands.data.batches import Data
from regtta.commands.data.opening import DataOptions, open_data
from regtta.commands.data.shuffling import Shuffled, shuffle
from regtta.commands.diagnostics import diagnostics_file
from regtta.commands.exports import ModelFiles
from regtta.commands.methods import chosen_method
from regtta.commands.models import floating_dtype, load_model
from regtta.commands.monitoring import MonitorFiles, alarms_of
from regtta.commands.passes import Progress, Tally, adapting, predicting
from regtta.commands.predictions import PredictionSink, prediction_file, reordered
from regtta.commands.protocols import Protocol
from regtta.commands.resuming import EVERY, resumable
from regtta.commands.sharing import SharedAdapter
from regtta.commands.teams import ONE, Team
from regtta.commands.writing import own_files
from regtta.errors import OptionError, StatisticsError
from regtta.execution import FAST, PLAIN, Execution, Precision
from regtta.failing import failing_together
from regtta.guards import DEFAULT, SAFE
from regtta.methods import Method, Source
from regtta.metrics import Scores
from regtta.monitor import Monitor
from regtta.statistics import SourceStatistics

if TYPE_CHECKING:
    from regtta.commands.recording import Recorder

BATCH_SIZE = 64


@dataclass(frozen=True)
class AdaptOptions:
    """What to adapt, on what, how, and what to write.

    Attributes:
        model: ``package.module:factory``.
        data: the target data; labels in it are for scoring only, but for a method that learns from them.
        weights: state dict to load first.
        stats: source statistics, for methods that need them.
        method: its name.
        settings: its options, as ``key=value``.
        protocol: online or offline.
        head: name of the head, else that of the statistics.
        device: where to run, else where the factory put the model.
        shuffle_seed: visit the rows in the random order of this seed.
        predictions: CSV or Parquet file to write.
        adapted_weights: safetensors file to write.
        diagnostics: JSON lines to write.
        record: JSON file to write, from which a report is made.
        export: the adapted model to write, as .safetensors, .pt2 or .onnx.
        checkpoint: safetensors file that keeps where the stream stands.
        checkpoint_every: batches between two writes of it.
        resume: go on from the checkpoint, where there is one.
        monitor: JSON lines of signals and alarms to write.
        prometheus: text file for Prometheus to write.
        tensorboard: folder for TensorBoard to write into.
        safe: guard the stream as in production.
        precision: of the model's passes; None for the execution's own.
        fast: run as quickly as the device can.
        allow_mismatch: go on with statistics of another model or head.
        force: replace files that exist.
    """

    model: str
    data: DataOptions
    weights: Path | None = None
    stats: Path | None = None
    method: str = "ssa"
    settings: tuple[str, ...] = ()
    protocol: Protocol = Protocol.online
    head: str | None = None
    device: str | None = None
    shuffle_seed: int | None = None
    predictions: Path | None = None
    adapted_weights: Path | None = None
    diagnostics: Path | None = None
    record: Path | None = None
    export: Path | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = EVERY
    resume: bool = False
    monitor: Path | None = None
    prometheus: Path | None = None
    tensorboard: Path | None = None
    safe: bool = False
    precision: Precision | None = None
    fast: bool = False
    allow_mismatch: bool = False
    force: bool = False

    @property
    def outputs(self) -> dict[str, Path | None]:
        """The files to write, by option."""
        return {
            "--predictions": self.predictions,
            "--adapted-weights": self.adapted_weights,
            "--diagnostics": self.diagnostics,
            "--record": self.record,
            "--export": self.export,
            "--monitor": self.monitor,
            "--prometheus": self.prometheus,
        }

    @property
    def execution(self) -> Execution:
        """How to run the model."""
        plain = FAST if self.fast else PLAIN
        return plain if self.precision is None else replace(plain, precision=self.precision)

    @property
    def monitored(self) -> MonitorFiles:
        """What a monitor writes."""
        return MonitorFiles(self.monitor, self.prometheus, self.tensorboard)


@dataclass(frozen=True)
class AdaptReport:
    """What came of it.

    Attributes:
        method: its name.
        protocol: whose predictions were written and scored.
        samples: how many rows.
        not_finite: how many predictions are NaN or infinite.
        learned: batches learned from.
        refused: how many batches were not, by reason, the most frequent first.
        unscored: rows left out of the scores, since inputs or labels are missing there.
        scores: of the unadapted model and of the predictions, where there were labels.
        written: the files.
        alarms: what the monitor has to say, a line each; empty without one.
    """

    method: str
    protocol: str
    samples: int
    not_finite: int
    learned: int
    refused: Mapping[str, int]
    unscored: int
    scores: tuple[Scores, Scores] | None
    written: tuple[Path, ...]
    alarms: tuple[str, ...] = ()


def adapt_model(options: AdaptOptions, progress: Progress | None = None, team: Team = ONE) -> AdaptReport:
    """Adapt and write.

    Args:
        options: what to adapt and what to write.
        progress: told the samples seen and, where known, how many there are.
        team: the processes that adapt together, each to its share of every batch; the user gets the first one's files.
    """
    with failing_together(team.processes):
        if team.first:
            check_files(options, _model_files(options))
    with own_files(options, team) as own:
        return _adapt(own, progress, team)


def _adapt(options: AdaptOptions, progress: Progress | None, team: Team) -> AdaptReport:
    with failing_together(team.processes):
        chosen = chosen_method(options.method, options.settings)
        source = _statistics(options.stats, chosen)
        model = load_model(options.model, options.weights, team.device(options.device))
        model_files = _model_files(options)
        model_files.check_model(model)
        data = open_data(options.data, batch_size=BATCH_SIZE, dtype=floating_dtype(model))
        check_passes(options, data)
        check_labels(chosen, data)
    group = team.group_for(model)
    kind = Adapter if group is None else SharedAdapter
    adapter = kind(
        model,
        chosen,
        source,
        head=options.head,
        guards=SAFE if options.safe else DEFAULT,
        allow_mismatch=options.allow_mismatch,
        execution=options.execution,
        group=group,
    )
    tally = Tally(kind(model, Source(), group=group) if data.target_names else None)
    recorder = _recorder(options, model, adapter)
    monitor = options.monitored.monitor(adapter)
    _run(
        options,
        data,
        adapter,
        tally=tally,
        recorder=recorder,
        monitor=monitor,
        model_files=model_files,
        progress=progress,
    )
    model_files.write(adapter)
    report = AdaptReport(
        method=chosen.name,
        protocol=options.protocol.value,
        samples=tally.predicted,
        not_finite=tally.not_finite,
        learned=tally.learned,
        refused=dict(tally.refused.most_common()),
        unscored=tally.unscored,
        scores=tally.scores(),
        written=tuple(path for path in (*options.outputs.values(), options.tensorboard) if path is not None),
        alarms=alarms_of(monitor),
    )
    if recorder is not None and options.record is not None:
        from regtta.commands.recording import write_record

        online = options.protocol is Protocol.online
        write_record(options.record, recorder.record(_about(options, report), online=online))
    return report


def _recorder(options: AdaptOptions, model: nn.Module, adapter: Adapter) -> "Recorder | None":
    if options.record is None:
        return None
    from regtta.commands.recording import Recorder  # which needs more than a plain adaptation does

    return Recorder(model, adapter)


def _about(options: AdaptOptions, report: AdaptReport) -> dict[str, object]:
    """What was run, and what came of it in numbers, for a record."""
    from regtta.commands.command_line import command_line

    return {
        "command": command_line(options),
        "model": options.model,
        "data": options.data.data,
        "protocol": report.protocol,
        "samples": report.samples,
        "not_finite": report.not_finite,
        "learned": report.learned,
        "refused": dict(report.refused),
        "unscored": report.unscored,
        "scores": None
        if report.scores is None
        else dict(zip(("before", "after"), (scores.plain() for scores in report.scores), strict=True)),
    }


def _run(
    options: AdaptOptions,
    data: Data,
    adapter: Adapter,
    *,
    tally: Tally,
    recorder: "Recorder | None",
    monitor: Monitor | None,
    model_files: ModelFiles,
    progress: Progress | None,
) -> None:
    """Adapt, predict again where the protocol says so, and write what is written on the way."""
    online = options.protocol is Protocol.online
    visited = data if options.shuffle_seed is None else _shuffled(options, data)
    with ExitStack() as files:
        if monitor is not None:
            files.enter_context(monitor)
        steps = files.enter_context(diagnostics_file(options.diagnostics)) if options.diagnostics else None
        sink: PredictionSink | None = None
        if options.predictions is not None:
            sink = files.enter_context(prediction_file(options.predictions, data.target_names))
            if online and isinstance(visited, Shuffled):
                sink = files.enter_context(reordered(sink, visited.order))
        stream = resumable(options, adapter, BATCH_SIZE)
        adapt = (stream or monitor or adapter).adapt
        watch = None if recorder is None else recorder.watch
        for step, batch in adapting(adapter, visited, progress, watch=watch, adapt=adapt):
            tally.stepped(step)
            model_files.see(adapter, batch.inputs)
            if recorder is not None:
                recorder.see(step, batch.inputs, batch.targets)
            if steps is not None:
                steps.write(step)
            if online:
                tally.answered(step.predictions, batch)
                if sink is not None:
                    sink.write(step.predictions, batch.targets)
        if stream is not None:
            stream.finish()
        if not online:
            for predictions, batch in predicting(adapter, data, progress):
                tally.answered(predictions, batch)
                if sink is not None:
                    sink.write(predictions, batch.targets)
        check_rows(options, tally)


def _shuffled(options: AdaptOptions, data: Data) -> Shuffled:
    if options.data.path is None:
        raise OptionError("--shuffle-seed has no meaning for a loader. Shuffle in the loader.")
    return shuffle(data, options.shuffle_seed or 0, options.data.batch_size or BATCH_SIZE)


def _model_files(options: AdaptOptions) -> ModelFiles:
    return ModelFiles({"--adapted-weights": options.adapted_weights, "--export": options.export})


def _statistics(path: Path | None, chosen: Method) -> SourceStatistics | None:
    if path is not None:
        return SourceStatistics.load(path)
    if chosen.needs_source:
        raise StatisticsError(
            f"{chosen.name} needs source statistics. Make them where the source data lies, with regtta "
            "collect, and pass --stats FILE."
        )
    return None
