"""What ``--monitor``, ``--prometheus`` and ``--tensorboard`` ask for."""

from dataclasses import dataclass
from pathlib import Path

from regtta.adapter import Adapter
from regtta.commands.outputs import check_folder
from regtta.errors import OptionError
from regtta.monitor import JsonLines, Monitor, PrometheusText, TensorBoard, Writer
from regtta.optional_imports import import_optional


@dataclass(frozen=True)
class MonitorFiles:
    """Where signals and alarms are written to.

    Attributes:
        lines: JSON lines.
        prometheus: a text file for Prometheus.
        tensorboard: a folder for TensorBoard.
    """

    lines: Path | None = None
    prometheus: Path | None = None
    tensorboard: Path | None = None

    def check(self, stats: Path | None, *, force: bool) -> None:
        """Raise, before any work is done, where there can be no monitor; the files are checked with the others."""
        named = {"--monitor": self.lines, "--prometheus": self.prometheus, "--tensorboard": self.tensorboard}
        given = [option for option, path in named.items() if path is not None]
        if given and stats is None:
            raise OptionError(f"{given[0]} compares with the source. Pass --stats FILE, made with regtta collect.")
        if self.tensorboard is not None:
            check_folder(self.tensorboard, force=force)
            import_optional("tensorboard", "monitor", "--tensorboard")

    def monitor(self, adapter: Adapter) -> Monitor | None:
        """The monitor that writes them; ``None`` where none was asked for."""
        writers: list[Writer] = []
        if self.lines is not None:
            self.lines.unlink(missing_ok=True)  # whether it may be replaced was asked at the start
            writers.append(JsonLines(self.lines))
        if self.prometheus is not None:
            writers.append(PrometheusText(self.prometheus))
        if self.tensorboard is not None:
            writers.append(TensorBoard(self.tensorboard))
        return Monitor(adapter, writers=writers) if writers else None


def alarms_of(monitor: Monitor | None) -> tuple[str, ...]:
    """A line for each alarm that was raised and for each writer that failed; none without a monitor."""
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
