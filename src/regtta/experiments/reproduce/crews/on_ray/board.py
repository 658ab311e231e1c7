"""Ray actor that collects the training progress of the workers for the driver."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

_PATIENCE = 5.0  # seconds; progress reports must not delay the sweep


class AlarmSet:
    """Actor that buffers progress reports in a process of its own."""

    def __init__(self) -> None:
        self._news: list[tuple[str, int, int]] = []

    def tell(self, name: str, done: int, total: int) -> None:
        """Append the progress of a training."""
        self._news.append((name, done, total))

    def take(self) -> list[tuple[str, int, int]]:
        """Return the reports since the last call and clear the buffer."""
        news, self._news = self._news, []
        return news


def put_up() -> Any:
    """Start the actor on any machine of the cluster; Ray restarts it if it is lost."""
    import ray

    return ray.remote(AlarmSet).options(num_cpus=0, max_restarts=-1).remote()


def read(board: Any) -> Iterable[tuple[str, int, int]]:
    """Return the reports since the last call; none if the actor does not respond."""
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError

    with suppress(RayActorError, GetTimeoutError, ConnectionError):
        news: list[tuple[str, int, int]] = ray.get(board.take.remote(), timeout=_PATIENCE)
        return news
    return []


class Writer:
    """Callback of a worker that sends its training progress to the actor."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self._last: list[Any] = []

    def __call__(self, name: str, done: int, total: int) -> None:
        """Report the progress of a training without blocking."""
        self._last = [self._board.tell.remote(name, done, total)]

    def put_down(self) -> None:
        """Wait until the last report has arrived, up to a timeout."""
        import ray

        if self._last:
            ray.wait(self._last, timeout=_PATIENCE)
            self._last = []
