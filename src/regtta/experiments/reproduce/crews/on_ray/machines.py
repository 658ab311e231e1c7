"""Machines of a Ray cluster: their resources, and calling a function on each of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster.

    Attributes:
        name: host name.
        mark: Ray's node ID.
        cpus: CPUs available to Ray.
        gpus: GPUs available to Ray.
    """

    name: str
    mark: str
    cpus: float
    gpus: float


def machines() -> list[Machine]:
    """Return the live machines of the cluster that this process is connected to."""
    import ray

    return [
        Machine(
            name=str(node["NodeManagerHostname"]),
            mark=str(node["NodeID"]),
            cpus=float(node["Resources"].get("CPU", 0)),
            gpus=float(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def on_each(where: Iterable[Machine], function: Callable[..., Any], *given: Any) -> dict[Any, Machine]:
    """Call ``function(*given)`` once on each machine, even if busy; return the machine of each pending result."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(function)
    return {
        remote.options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.mark, soft=False),
        ).remote(*given): machine
        for machine in where
    }
