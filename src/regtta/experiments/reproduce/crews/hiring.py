"""Selection of the executor by command-line options."""

from collections.abc import Iterator
from contextlib import contextmanager

from regtta.experiments.reproduce.crews.here import Here
from regtta.experiments.reproduce.crews.on_ray.connecting import connected
from regtta.experiments.reproduce.crews.on_ray.crew import OnRay
from regtta.experiments.reproduce.crews.processes import Processes
from regtta.experiments.reproduce.roles import Crew


@contextmanager
def hired(jobs: int | None = None, ray: str | None = None) -> Iterator[Crew]:
    """Yield the executor for the given options within a ``with`` block.

    Args:
        jobs: number of concurrent runs; None for one, or on a cluster for as many as its resources allow.
        ray: address of a Ray cluster to run on; None to run on this machine without Ray.

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
