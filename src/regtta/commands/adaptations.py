"""Options and report of ``regtta adapt``."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from regtta.commands.data.opening import DataOptions
from regtta.commands.monitoring import MonitorFiles
from regtta.commands.protocols import Protocol
from regtta.commands.resuming import EVERY
from regtta.execution import FAST, PLAIN, Execution, Precision
from regtta.metrics import Scores

# Fields of AdaptOptions that name an output file.
FILES = ("predictions", "adapted_weights", "diagnostics", "record", "export", "monitor", "prometheus")


@dataclass(frozen=True)
class AdaptOptions:
    """Options of ``regtta adapt``.

    Attributes:
        model: ``package.module:factory``.
        data: target data; labels are used for scoring only, except by methods that learn from them.
        weights: state dict to load into the model.
        stats: source statistics, if the method needs them.
        method: name of the method.
        settings: hyperparameters of the method, as ``key=value``.
        protocol: online or offline.
        head: name of the head; by default the one of the statistics.
        device: device to run on; by default the one the factory chose.
        shuffle_seed: seed of a random order of the rows; ``None`` keeps their order.
        predictions: output file of predictions, CSV or Parquet.
        adapted_weights: output file of the adapted weights, safetensors.
        diagnostics: output file of diagnostics, JSON lines.
        record: output file for ``regtta report``, JSON.
        export: output file of the adapted model, ``.safetensors``, ``.pt2`` or ``.onnx``.
        checkpoint: safetensors file with the state of the stream.
        checkpoint_every: batches between two checkpoints.
        resume: resume from the checkpoint if it exists.
        monitor: output file of signals and alarms, JSON lines.
        prometheus: output text file for Prometheus.
        tensorboard: output folder for TensorBoard.
        safe: use the guards recommended for production.
        precision: precision of the forward passes; ``None`` for the default of the execution.
        fast: use the fastest execution of the device.
        allow_mismatch: accept statistics of another model or head.
        force: replace existing files.
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
        """Output files by option name."""
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in FILES}

    @property
    def execution(self) -> Execution:
        """Execution settings of the model."""
        plain = FAST if self.fast else PLAIN
        return plain if self.precision is None else replace(plain, precision=self.precision)

    @property
    def monitored(self) -> MonitorFiles:
        """Output files of the monitor."""
        return MonitorFiles(self.monitor, self.prometheus, self.tensorboard)


@dataclass(frozen=True)
class AdaptReport:
    """Report of ``regtta adapt``.

    Attributes:
        method: name of the method.
        protocol: protocol of the predictions written and scored.
        samples: number of rows.
        not_finite: number of predictions that are NaN or infinite.
        learned: number of batches learned from.
        refused: number of other batches by reason, most frequent first.
        excluded: number of samples excluded from learning.
        unscored: number of rows excluded from the scores because inputs or labels are missing.
        scores: scores of the unadapted model and of the predictions; ``None`` without labels.
        written: output files.
        alarms: one line per alarm of the monitor; empty without a monitor.
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
