"""Progress of a sweep on stderr: bars with the remaining time, or lines if stderr is not a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from regtta_bench.sweep.interfaces import ProgressListener, Spec

_LINES = 20  # approximate number of lines that a sweep prints if stderr is not a terminal


@contextmanager
def show_progress() -> Iterator["ProgressListener"]:
    """Yield a listener that prints the progress of a sweep while the block runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ProgressLines(lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield ProgressBars(progress)


class ProgressBars:
    """Listener that shows a progress bar for each source model in training, and one for the runs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._trainings: dict[str, TaskID] = {}
        self._runs: TaskID | None = None

    def on_start(self, runs: int, found: int) -> None:
        """Start the bar of the runs."""
        text = f"runs ({found} found)" if found else "runs"
        self._runs = self._progress.add_task(text, total=runs)

    def on_training(self, name: str, done: int, total: int) -> None:
        """Update the bar of a source model, and hide it at the end of its training."""
        if name not in self._trainings:
            self._trainings[name] = self._progress.add_task(f"training {name}, epochs", total=total)
        self._progress.update(self._trainings[name], completed=done, visible=done < total)

    def on_run(self, spec: "Spec", result: dict[str, object]) -> None:  # noqa: ARG002 - signature of Listener
        """Advance the bar of the runs."""
        if self._runs is not None:
            self._progress.advance(self._runs)


class ProgressLines:
    """Listener that prints a line from time to time.

    Args:
        say: prints one line.
        clock: monotonic time in seconds.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._total = self._done = 0
        self._began: dict[str, tuple[int, float]] = {}

    def on_start(self, runs: int, found: int) -> None:
        """Print the number of runs."""
        self._total = runs
        self._began["runs"] = (0, self._clock())
        self._say(f"{runs} runs to make, {found} found.")

    def on_training(self, name: str, done: int, total: int) -> None:
        """Print the epochs done, at each quarter and at the end of a training."""
        if name not in self._began:
            self._began[name] = (done, self._clock())
        if done in (total, *(total * quarter // 4 for quarter in (1, 2, 3))):
            self._say(f"training {name}: {done} of {total} epochs{self._left(name, done, total)}")

    def on_run(self, spec: "Spec", result: dict[str, object]) -> None:  # noqa: ARG002 - signature of Listener
        """Print the number of runs done, about 20 times in a sweep."""
        self._done += 1
        if self._done == self._total or self._done % max(1, self._total // _LINES) == 0:
            self._say(f"{self._done} of {self._total} runs{self._left('runs', self._done, self._total)}")

    def _left(self, task: str, done: int, total: int) -> str:
        first, began = self._began[task]
        if done >= total or done <= first:
            return ""
        seconds = (self._clock() - began) / (done - first) * (total - done)
        return f", about {format_duration(seconds)} left"


def format_duration(seconds: float) -> str:
    """Format a duration.

    Example:
        >>> format_duration(40), format_duration(400), format_duration(8000)
        ('40 s', '7 min', '2 h 13 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    whole = round(seconds / 60)
    return f"{whole} min" if whole < 100 else f"{whole // 60} h {whole % 60} min"
