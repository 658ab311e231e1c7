"""How a sweep goes, told in the terminal: bars with the time left, or lines where there is no terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from regtta.experiments.reproduce.roles import Listener, Spec

_LINES = 20  # about as many lines as a sweep prints where there is no terminal


@contextmanager
def told_in_terminal() -> Iterator["Listener"]:
    """Who tells of a sweep, while the block runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bars(progress)


class Bars:
    """A bar for each source model in training, and one for the runs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._trainings: dict[str, TaskID] = {}
        self._runs: TaskID | None = None

    def begun(self, runs: int, found: int) -> None:
        """Show how many runs there are."""
        text = f"runs ({found} found)" if found else "runs"
        self._runs = self._progress.add_task(text, total=runs)

    def training(self, name: str, done: int, total: int) -> None:
        """Move the bar of a source model, and take it away at its end."""
        if name not in self._trainings:
            self._trainings[name] = self._progress.add_task(f"training {name}, epochs", total=total)
        self._progress.update(self._trainings[name], completed=done, visible=done < total)

    def ran(self, spec: "Spec", result: dict[str, object]) -> None:  # noqa: ARG002 - told alike to all
        """Move the bar of the runs."""
        if self._runs is not None:
            self._progress.advance(self._runs)


class Lines:
    """A line now and then.

    Args:
        say: prints one.
        clock: seconds that only grow.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._total = self._done = 0
        self._began: dict[str, tuple[int, float]] = {}

    def begun(self, runs: int, found: int) -> None:
        """Say how many runs there are."""
        self._total = runs
        self._began["runs"] = (0, self._clock())
        self._say(f"{runs} runs to make, {found} found.")

    def training(self, name: str, done: int, total: int) -> None:
        """Say how far a training is, at each quarter and at its end."""
        if name not in self._began:
            self._began[name] = (done, self._clock())
        if done in (total, *(total * quarter // 4 for quarter in (1, 2, 3))):
            self._say(f"training {name}: {done} of {total} epochs{self._left(name, done, total)}")

    def ran(self, spec: "Spec", result: dict[str, object]) -> None:  # noqa: ARG002 - told alike to all
        """Say how many runs are made, now and then."""
        self._done += 1
        if self._done == self._total or self._done % max(1, self._total // _LINES) == 0:
            self._say(f"{self._done} of {self._total} runs{self._left('runs', self._done, self._total)}")

    def _left(self, what: str, done: int, total: int) -> str:
        first, began = self._began[what]
        if done >= total or done <= first:
            return ""
        seconds = (self._clock() - began) / (done - first) * (total - done)
        return f", about {minutes(seconds)} left"


def minutes(seconds: float) -> str:
    """A time for people.

    Example:
        >>> minutes(40), minutes(400), minutes(8000)
        ('40 s', '7 min', '2 h 13 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    whole = round(seconds / 60)
    return f"{whole} min" if whole < 100 else f"{whole // 60} h {whole % 60} min"
