"""Selection of the executor by command-line options."""

from collections.abc import Iterator
from contextlib import contextmanager

from regtta_bench.sweep.executors.local import ProcessExecutor, SequentialExecutor
from regtta_bench.sweep.executors.ray.cluster import connect_to_cluster
from regtta_bench.sweep.executors.ray.executor import RayExecutor
from regtta_bench.sweep.interfaces import Executor


@contextmanager
def make_executor(jobs: int | None = None, ray: str | None = None) -> Iterator[Executor]:
    """Yield the executor for the given options within a ``with`` block.

    Args:
        jobs: number of concurrent runs; None for one, or on a cluster for as many as its resources allow.
        ray: address of a Ray cluster to run on; None to run on this machine without Ray.

    Example:
        >>> with make_executor(jobs=2) as executor:
        ...     type(executor).__name__
        'ProcessExecutor'
    """
    if ray is not None:
        with connect_to_cluster(ray):
            yield RayExecutor(jobs)
    else:
        yield SequentialExecutor() if jobs is None or jobs == 1 else ProcessExecutor(jobs)
