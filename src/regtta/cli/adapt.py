"""``regtta adapt``: adapt a model to target data and write predictions, weights and diagnostics."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from regtta.adapter import Adapter
from regtta.cli.adapt_checks import check_labels, check_options, check_passes, check_rows, open_diagnostics
from regtta.cli.adapt_options import AdaptOptions, Protocol
from regtta.cli.adapt_report import AdaptReport, summarize_alarms
from regtta.cli.data.images import Images
from regtta.cli.data.labelled_batches import Data
from regtta.cli.data.open_data import ShuffledData, extract_data_options, open_data, shuffle
from regtta.cli.method_table import parse_method
from regtta.cli.outputs import ModelWriter, redirect_outputs
from regtta.cli.predictions import (
    PredictionSink,
    Progress,
    Tally,
    adapt_batches,
    predict_batches,
    prediction_file,
    reordered,
)
from regtta.cli.resume import StepHistory, step_history
from regtta.cli.shared_options import parse_key
from regtta.cli.torchrun import SINGLE_WORKER, WorkerGroup
from regtta.cli.user_code import floating_dtype, load_model
from regtta.errors import OptionError, StatisticsError
from regtta.execution import sync_errors
from regtta.guards import DEFAULT, SAFE
from regtta.methods import Method, NoAdaptation
from regtta.monitoring import Monitor
from regtta.persistence import Checkpoint
from regtta.statistics import SourceStatistics
from regtta.types import Callback

if TYPE_CHECKING:
    from regtta.report.recorder import RunRecorder

BATCH_SIZE = 64


def adapt_model(
    options: AdaptOptions, progress: Progress | None = None, workers: WorkerGroup = SINGLE_WORKER
) -> AdaptReport:
    """Adapt a model, write the files that ``options`` name, and return a report.

    Args:
        options: the model, the data and the outputs.
        progress: callback ``(samples_seen, total)``; ``total`` is ``None`` if unknown.
        workers: processes that run the command; each adapts on its shard of every batch, the first writes the files.
    """
    with sync_errors(workers.processes):
        if workers.is_first:
            check_options(options, _model_files(options))
    with redirect_outputs(options, workers) as own:
        return _adapt(own, progress, workers)


def _adapt(options: AdaptOptions, progress: Progress | None, workers: WorkerGroup) -> AdaptReport:
    with sync_errors(workers.processes):
        chosen = parse_method(options.method, options.settings)
        source = _statistics(options.stats, chosen)
        model = load_model(options.model, options.weights, workers.device(options.device))
        model_writer = _model_files(options)
        model_writer.check_state_dict(model)
        columns = () if source is None else source.columns
        data = open_data(
            extract_data_options(options),
            batch_size=BATCH_SIZE,
            dtype=floating_dtype(model),
            source_columns=columns,
            model=model,
        )
        check_passes(options, data)
        check_labels(chosen, data)
    group = workers.process_group_for(model)
    followers = _followers(options, model, named_columns=bool(columns))
    output = None if options.output is None else parse_key(options.output)
    adapter = Adapter(
        model,
        chosen,
        source,
        head=options.head,
        output=output,
        guards=SAFE if options.safe else DEFAULT,
        callbacks=followers.callbacks,
        allow_mismatch=options.allow_mismatch,
        execution=options.execution,
        process_group=group,
        whole_batches=True,
        serve=options.serve.value,
    )
    baseline = None
    if data.target_names:
        baseline = Adapter(model, NoAdaptation(), output=output, process_group=group, whole_batches=True)
    tally = Tally(baseline)
    _run(options, data, adapter, tally=tally, followers=followers, model_writer=model_writer, progress=progress)
    model_writer.write(adapter)
    report = _report(options, chosen, tally, summarize_alarms(followers.monitor))
    if followers.recorder is not None and options.record is not None:
        from regtta.report.recorder import write_record

        online = options.protocol is Protocol.online
        write_record(options.record, followers.recorder.record(_about(options, report), online=online))
    return report


@dataclass(frozen=True)
class _Followers:
    """Callbacks that the options require, each None if they do not."""

    recorder: "RunRecorder | None" = None
    monitor: Monitor | None = None
    history: StepHistory | None = None
    checkpoint: Checkpoint | None = None

    @property
    def callbacks(self) -> list[Callback]:
        found = (self.recorder, self.monitor, self.history, self.checkpoint)
        return [callback for callback in found if callback is not None]


def _recorder(model: nn.Module) -> "RunRecorder":
    from regtta.report.recorder import RunRecorder  # imported lazily: it loads the analysis package

    return RunRecorder(model)


def _followers(options: AdaptOptions, model: nn.Module, *, named_columns: bool) -> _Followers:
    recorder = None if options.record is None else _recorder(model)
    if options.checkpoint is None:
        return _Followers(recorder, options.monitor_files.monitor())
    checkpoint = Checkpoint(options.checkpoint, options.checkpoint_every, overwrite=options.force)
    history = step_history(options, BATCH_SIZE, named_columns=named_columns)
    return _Followers(recorder, options.monitor_files.monitor(), history, checkpoint)


def _report(options: AdaptOptions, chosen: Method, tally: Tally, alarms: tuple[str, ...]) -> AdaptReport:
    return AdaptReport(
        method=chosen.name,
        protocol=options.protocol.value,
        samples=tally.predicted,
        not_finite=tally.not_finite,
        learned=tally.learned,
        refused=dict(tally.refused.most_common()),
        unscored=tally.unscored,
        scores=tally.scores(),
        written=tuple(path for path in (*options.outputs.values(), options.tensorboard) if path is not None),
        alarms=alarms,
        excluded=tally.excluded,
    )


def _about(options: AdaptOptions, report: AdaptReport) -> dict[str, object]:
    """Return the command and its results for a record."""
    from regtta.cli.adapt_checks import format_command_line

    return {
        "command": format_command_line(options),
        "model": options.model,
        "data": options.data,
        "protocol": report.protocol,
        "samples": report.samples,
        "not_finite": report.not_finite,
        "learned": report.learned,
        "refused": dict(report.refused),
        "excluded": report.excluded,
        "unscored": report.unscored,
        "scores": None
        if report.scores is None
        else dict(zip(("before", "after"), (scores.to_dict() for scores in report.scores), strict=True)),
    }


def _run(
    options: AdaptOptions,
    data: Data,
    adapter: Adapter,
    *,
    tally: Tally,
    followers: _Followers,
    model_writer: ModelWriter,
    progress: Progress | None,
) -> None:
    """Run the adaptation, and the second pass of the offline protocol, writing predictions and diagnostics."""
    online = options.protocol is Protocol.online
    visited = data if options.shuffle_seed is None else _shuffled(options, data)
    recorder, history, checkpoint = followers.recorder, followers.history, followers.checkpoint
    with ExitStack() as files:
        if followers.monitor is not None:
            files.callback(followers.monitor.close)
        steps = files.enter_context(open_diagnostics(options.diagnostics)) if options.diagnostics else None
        sink: PredictionSink | None = None
        if options.predictions is not None:
            names = data.names if isinstance(data, Images) else None
            sink = files.enter_context(prediction_file(options.predictions, data.target_names, names))
            if online and isinstance(visited, ShuffledData):
                sink = files.enter_context(reordered(sink, visited.order))
        if checkpoint is not None and options.resume:
            checkpoint.resume()
        done = () if history is None else tuple(history.steps)
        for step, batch in adapt_batches(adapter, visited, progress, recorder=recorder, done=done):
            tally.add_step(step)
            model_writer.take_example(adapter, batch.inputs)
            if steps is not None:
                steps.write(step)
            if online:
                tally.add_predictions(step.predictions, batch)
                if sink is not None:
                    sink.write(step.predictions, batch.targets)
        if checkpoint is not None:
            checkpoint.try_save()  # so that the stream can be continued when there is more data
        if not online:
            for predictions, batch in predict_batches(adapter, data, progress):
                tally.add_predictions(predictions, batch)
                if sink is not None:
                    sink.write(predictions, batch.targets)
        check_rows(options, tally)


def _shuffled(options: AdaptOptions, data: Data) -> ShuffledData:
    if extract_data_options(options).path is None:
        raise OptionError("--shuffle-seed does not apply to a loader. Shuffle in the loader.")
    return shuffle(data, options.shuffle_seed or 0, options.batch_size or BATCH_SIZE)


def _model_files(options: AdaptOptions) -> ModelWriter:
    return ModelWriter({"--adapted-weights": options.adapted_weights, "--export": options.export})


def _statistics(path: Path | None, chosen: Method) -> SourceStatistics | None:
    if path is not None:
        return SourceStatistics.load(path)
    if chosen.needs_source:
        raise StatisticsError(
            f"{chosen.name} needs source statistics. Compute them on the source data with regtta collect, and pass "
            "--stats FILE."
        )
    return None
