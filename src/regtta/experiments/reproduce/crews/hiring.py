"""Which crew makes the runs, by what the user asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

from regtta.experiments.reproduce.crews.here import Here
from regtta.experiments.reproduce.crews.on_ray.connecting import connected
from regtta.experiments.reproduce.crews.on_ray.crew import OnRay
from regtta.experiments.reproduce.crews.processes import Processes
from regtta.experiments.reproduce.roles import Crew


@contextmanager
def hired(jobs: int | None = None, ray: str | None = None) -> Iterator[Crew]:
    """A crew for the block.

    Args:
        jobs: runs at once; None for one, and on a cluster for as many as there is room for.
        ray: address of the Ray cluster whose machines make the runs; None for this machine without Ray.

    Example:
        >>> with hired(jobs=2) as crew:
        ...     type(crew).__name__
        'Processes'
    """
    if ray is not None:
        with connected(ray):
            yield OnRay(jobs)
    else:
        yield Here() if jobs is None or jobs == 1 else Processes(jobs)
