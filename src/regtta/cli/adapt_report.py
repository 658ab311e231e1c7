"""Report of ``regtta adapt``, and the monitor that its options describe."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from regtta.cli.outputs import check_output_folder
from regtta.errors import OptionError
from regtta.metrics import Scores
from regtta.monitoring import JsonLines, Monitor, PrometheusText, TensorBoard, Writer
from regtta.optional_imports import import_optional


@dataclass(frozen=True)
class MonitorFiles:
    """Output files of the monitor.

    Attributes:
        lines: JSON lines of signals and alarms.
        prometheus: text file for Prometheus.
        tensorboard: folder for TensorBoard.
    """

    lines: Path | None = None
    prometheus: Path | None = None
    tensorboard: Path | None = None

    def check(self, stats: Path | None, *, force: bool) -> None:
        """Raise if the monitor cannot run; output files other than TensorBoard's are checked elsewhere."""
        paths = {"--monitor": self.lines, "--prometheus": self.prometheus, "--tensorboard": self.tensorboard}
        given = [option for option, path in paths.items() if path is not None]
        if given and stats is None:
            raise OptionError(f"{given[0]} needs source statistics. Pass --stats FILE, written by regtta collect.")
        if self.tensorboard is not None:
            check_output_folder(self.tensorboard, force=force)
            import_optional("tensorboard", "monitor", "--tensorboard")

    def monitor(self) -> Monitor | None:
        """Return the monitor that writes these files, or ``None`` if there are none."""
        writers: list[Writer] = []
        if self.lines is not None:
            self.lines.unlink(missing_ok=True)  # permission to replace it was checked at the start
            writers.append(JsonLines(self.lines))
        if self.prometheus is not None:
            writers.append(PrometheusText(self.prometheus))
        if self.tensorboard is not None:
            writers.append(TensorBoard(self.tensorboard))
        return Monitor(writers=writers) if writers else None


def summarize_alarms(monitor: Monitor | None) -> tuple[str, ...]:
    """Return a line for each alarm raised and each writer that failed; empty without a monitor."""
    if monitor is None:
        return ()
    actions = {alarm.name: alarm.action for alarm in monitor.alarms}
    lines = [
        f"{name}, {'still on' if monitor.active[name] else 'over'}, raised {_times(count)}. {actions[name]}"
        for name, count in monitor.raised.items()
    ]
    lines += [f"{name} could not write {_times(count)}" for name, count in monitor.failures.items()]
    return tuple(lines or ["none"])


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


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
