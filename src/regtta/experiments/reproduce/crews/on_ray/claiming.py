"""What a task claims of a machine, and how many there are at once: ``--jobs`` and ``--device`` on a cluster."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regtta.errors import OptionError, RegttaError
from regtta.experiments.reproduce.crews.on_ray.machines import Machine

_AHEAD = 256  # tasks that are given out at least, so that a cluster that grows has work at once
_PRECISION = 10_000  # Ray counts GPUs in parts of this size


@dataclass(frozen=True)
class Claim:
    """What one task claims.

    Attributes:
        cpus: to itself.
        gpus: to itself; a part of one where several tasks share it.
        at_once: tasks that are given out at once; those that find no room wait.
    """

    cpus: int
    gpus: float
    at_once: int

    def fits(self, machine: Machine) -> bool:
        """Whether a machine can ever do a task."""
        return machine.cpus >= self.cpus and machine.gpus >= self.gpus


def claim_of(where: Sequence[Machine], jobs: int | None, *, device: str, small: bool) -> Claim:
    """What a task claims, so that ``jobs`` fill the cluster.

    Without ``jobs``, a task has one CPU or one GPU. With it, the CPUs are dealt out among as many tasks (small models
    have no use for a second), and more tasks than GPUs share them.

    Args:
        where: the machines.
        jobs: tasks at once; None for as many as there is room for.
        device: that tasks run on.
        small: whether all models are so small that one CPU is enough.

    Example:
        >>> machines = [Machine("a", "1", cpus=16, gpus=0), Machine("b", "2", cpus=8, gpus=0)]
        >>> claim_of(machines, 4, device="cpu", small=False).cpus
        6
    """
    if device.startswith("cuda"):
        return _of_gpus(where, jobs, device)
    largest = max((math.floor(machine.cpus) for machine in where), default=0)
    if largest < 1:
        raise RegttaError("No machine of the Ray cluster has a CPU to offer. Start one with ray start --num-cpus.")
    total = sum(math.floor(machine.cpus) for machine in where)
    cpus = 1 if small or jobs is None else max(1, min(total // jobs, largest))
    return Claim(cpus, 0.0, jobs or max(_AHEAD, 2 * total))


def _of_gpus(where: Sequence[Machine], jobs: int | None, device: str) -> Claim:
    if device != "cuda":
        raise OptionError(f"Expected --device cuda with --ray, which deals out the GPUs, found {device}.")
    total = sum(math.floor(machine.gpus) for machine in where if machine.cpus >= 1)
    if total < 1:
        names = ", ".join(machine.name for machine in where)
        raise RegttaError(f"No machine of the Ray cluster has a GPU to offer ({names}). Say --device cpu, or add one.")
    sharing = 1 if jobs is None else math.ceil(jobs / total)
    return Claim(1, math.floor(_PRECISION / sharing) / _PRECISION, jobs or max(_AHEAD, 2 * total))
