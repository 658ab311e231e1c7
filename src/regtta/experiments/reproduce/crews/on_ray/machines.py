"""The machines of the cluster: what each has to offer, and having something done on every one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """One machine.

    Attributes:
        name: of the host.
        mark: by which Ray knows it.
        cpus: that Ray may use.
        gpus: that Ray may use.
    """

    name: str
    mark: str
    cpus: float
    gpus: float


def machines() -> list[Machine]:
    """Those of the cluster that this process is connected to."""
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
    """Call ``function`` once on each machine, however busy: which machine is behind each of the pending results."""
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
