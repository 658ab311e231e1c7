"""Selection of the executor by command-line options."""

from collections.abc import Iterator
from contextlib import contextmanager

from regtta_bench.sweep.executors.local import Here, Processes
from regtta_bench.sweep.executors.ray.cluster import connected
from regtta_bench.sweep.executors.ray.executor import OnRay
from regtta_bench.sweep.interfaces import Crew


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
