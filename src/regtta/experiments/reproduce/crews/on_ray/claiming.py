"""Resources per task and number of concurrent tasks on a cluster, from ``--jobs`` and ``--device``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regtta.errors import OptionError, RegttaError
from regtta.experiments.reproduce.crews.on_ray.machines import Machine

_AHEAD = 256  # least number of submitted tasks, so that a growing cluster has work at once
_PRECISION = 10_000  # Ray counts GPUs in units of 1 / 10,000


@dataclass(frozen=True)
class Claim:
    """Resources of one task.

    Attributes:
        cpus: CPUs reserved for the task.
        gpus: GPUs reserved for the task; a fraction if several tasks share one.
        at_once: number of tasks submitted at once; those without free resources wait.
    """

    cpus: int
    gpus: float
    at_once: int

    def fits(self, machine: Machine) -> bool:
        """Return True if a machine has enough resources for a task."""
        return machine.cpus >= self.cpus and machine.gpus >= self.gpus


def claim_of(where: Sequence[Machine], jobs: int | None, *, device: str, small: bool) -> Claim:
    """Return the resources per task such that ``jobs`` tasks fill the cluster.

    Without ``jobs``, a task takes one CPU or one GPU. With ``jobs``, the CPUs are divided evenly among the tasks (small
    models take one), and tasks share GPUs if there are more tasks than GPUs.

    Args:
        where: the machines of the cluster.
        jobs: number of concurrent tasks; None for as many as the resources allow.
        device: device that tasks run on.
        small: True if all models are so small that one CPU is enough.

    Raises:
        RegttaError: if no machine has the resources.
        OptionError: if ``device`` names a particular GPU.

    Example:
        >>> machines = [Machine("a", "1", cpus=16, gpus=0), Machine("b", "2", cpus=8, gpus=0)]
        >>> claim_of(machines, 4, device="cpu", small=False).cpus
        6
    """
    if device.startswith("cuda"):
        return _of_gpus(where, jobs, device)
    largest = max((math.floor(machine.cpus) for machine in where), default=0)
    if largest < 1:
        raise RegttaError("No machine of the Ray cluster has a CPU available. Start one with ray start --num-cpus.")
    total = sum(math.floor(machine.cpus) for machine in where)
    cpus = 1 if small or jobs is None else max(1, min(total // jobs, largest))
    return Claim(cpus, 0.0, jobs or max(_AHEAD, 2 * total))


def _of_gpus(where: Sequence[Machine], jobs: int | None, device: str) -> Claim:
    if device != "cuda":
        raise OptionError(f"Expected --device cuda with --ray, which assigns the GPUs itself, found {device}.")
    total = sum(math.floor(machine.gpus) for machine in where if machine.cpus >= 1)
    if total < 1:
        names = ", ".join(machine.name for machine in where)
        raise RegttaError(
            f"No machine of the Ray cluster has a GPU available ({names}). Use --device cpu, or add a machine with one."
        )
    sharing = 1 if jobs is None else math.ceil(jobs / total)
    return Claim(1, math.floor(_PRECISION / sharing) / _PRECISION, jobs or max(_AHEAD, 2 * total))
