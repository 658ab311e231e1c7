"""What an adaptation is asked for on the command line, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from regtta.commands.data.opening import DataOptions
from regtta.commands.monitoring import MonitorFiles
from regtta.commands.protocols import Protocol
from regtta.commands.resuming import EVERY
from regtta.execution import FAST, PLAIN, Execution, Precision
from regtta.metrics import Scores

# The options that name a file to write.
FILES = ("predictions", "adapted_weights", "diagnostics", "record", "export", "monitor", "prometheus")


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
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in FILES}

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
        excluded: samples left out of learning, in whatever batches.
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
    excluded: int = 0
