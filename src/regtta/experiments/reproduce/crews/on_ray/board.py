"""Where workers write how far their trainings are, for the one who drives to read."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

_PATIENCE = 5.0  # seconds; what is told of a training is no reason to hold up the sweep


class AlarmSet:
    """Lives in a process of its own."""

    def __init__(self) -> None:
        self._news: list[tuple[str, int, int]] = []

    def tell(self, name: str, done: int, total: int) -> None:
        """Write how far a training is."""
        self._news.append((name, done, total))

    def take(self) -> list[tuple[str, int, int]]:
        """What was written since this was last asked."""
        news, self._news = self._news, []
        return news


def put_up() -> Any:
    """A board on some machine; it is put up again where that is lost."""
    import ray

    return ray.remote(AlarmSet).options(num_cpus=0, max_restarts=-1).remote()


def read(board: Any) -> Iterable[tuple[str, int, int]]:
    """What was written since; nothing where the board is lost for the moment."""
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError

    with suppress(RayActorError, GetTimeoutError, ConnectionError):
        news: list[tuple[str, int, int]] = ray.get(board.take.remote(), timeout=_PATIENCE)
        return news
    return []


class Writer:
    """A worker's pen."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self._last: list[Any] = []

    def __call__(self, name: str, done: int, total: int) -> None:
        """Write how far a training is, without waiting for it to be written."""
        self._last = [self._board.tell.remote(name, done, total)]

    def put_down(self) -> None:
        """Wait until all is written."""
        import ray

        if self._last:
            ray.wait(self._last, timeout=_PATIENCE)
            self._last = []
