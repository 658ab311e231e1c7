"""Which crew makes the runs, by what the user asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

from regtta.experiments.reproduce.crews.here import Here
from regtta.experiments.reproduce.crews.processes import Processes
from regtta.experiments.reproduce.roles import Crew


@contextmanager
def hired(jobs: int | None = None) -> Iterator[Crew]:
    """A crew for the block.

    Args:
        jobs: runs at once; None for one.

    Example:
        >>> with hired(jobs=2) as crew:
        ...     type(crew).__name__
        'Processes'
    """
    yield Here() if jobs is None or jobs == 1 else Processes(jobs)
