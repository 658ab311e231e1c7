"""Connection to a Ray cluster, its machines and the resources of a task."""

import logging
import math
import os
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from regtta.errors import OptionError, RegttaError
from regtta.optional_imports import import_optional


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster.

    Attributes:
        name: host name.
        node_id: Ray's node ID.
        cpus: CPUs available to Ray.
        gpus: GPUs available to Ray.
    """

    name: str
    node_id: str
    cpus: float
    gpus: float


def list_machines() -> list[Machine]:
    """Return the live machines of the cluster that this process is connected to."""
    import ray

    return [
        Machine(
            name=str(node["NodeManagerHostname"]),
            node_id=str(node["NodeID"]),
            cpus=float(node["Resources"].get("CPU", 0)),
            gpus=float(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def run_on_each(machines: Iterable[Machine], function: Callable[..., Any], *arguments: Any) -> dict[Any, Machine]:
    """Call ``function(*arguments)`` once on each machine, even if busy; return the machine of each pending result."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(function)
    return {
        remote.options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.node_id, soft=False),
        ).remote(*arguments): machine
        for machine in machines
    }


LOCAL, AUTO = "local", "auto"
CONNECT_TIMEOUT = 30.0  # timeout in seconds for a cluster to answer

_CLIENT_SCHEME = "ray://"
_MAX_REASON_LENGTH = 300  # most characters of a reason
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^\s:/]+|\[[^\s\]]+\]):(?P<port>\d{1,5})")
_TOKENS = "https://docs.ray.io/en/latest/ray-security/token-auth.html"
_RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_ENABLE_AUTO_CONNECT": "0",  # do not connect to another cluster when the connection is lost
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # the sweep itself logs workers that died
}
_INIT_OPTIONS = {"log_to_driver": False, "logging_level": logging.ERROR}
# ray.init can hang for minutes and ignore Ctrl-C, so a first attempt runs in a subprocess that can be killed.
_CONNECT_SCRIPT = "import logging, sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"


@contextmanager
def connect_to_cluster(address: str, *, cpus: int | None = None) -> Iterator[None]:
    """Connect to a Ray cluster within a ``with`` block; a cluster that was started for it is shut down at the end.

    Args:
        address: ``"local"`` to start a cluster on this machine, ``"auto"`` for the cluster that this machine is part
            of, ``"host:port"`` for the same by its address, ``"ray://host:port"`` for a remote cluster.
        cpus: CPUs of a local cluster; None for all of this machine.

    Raises:
        OptionError: if the address has another form.
        MissingExtraError: if Ray is not installed.
        RegttaError: if no cluster answers or could be started.
    """
    _check_form(address)
    os.environ.update(_RAY_ENVIRONMENT)  # Ray reads them when it is imported
    ray = import_optional("ray", "ray", "Running on a Ray cluster")
    _check_answers(address)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the error message covers it
            if address == LOCAL:
                ray.init(LOCAL, num_cpus=cpus, include_dashboard=False, **_INIT_OPTIONS)
            else:
                ray.init(address, **_INIT_OPTIONS)
    except Exception as error:  # Ray raises many types of errors here
        raise _no_cluster(address, f"{type(error).__name__}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_form(address: str) -> None:
    if address not in (LOCAL, AUTO) and not _ADDRESS.fullmatch(address):
        raise OptionError(
            f"Expected --ray to be local, auto, HOST:PORT or ray://HOST:PORT, found {address!r}. A cluster prints "
            "its address when it is started."
        )


def _check_answers(address: str) -> None:
    """Raise within bounded time if no cluster answers; Ray itself retries for minutes."""
    if address == LOCAL:
        return
    named = _ADDRESS.fullmatch(address)
    if named is not None:
        try:
            socket.create_connection((named["host"].strip("[]"), int(named["port"])), timeout=CONNECT_TIMEOUT).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, str(error)) from error
    if address.startswith(_CLIENT_SCHEME):
        return  # Ray's client has a timeout of its own
    try:
        trial = subprocess.run(
            [sys.executable, "-P", "-c", _CONNECT_SCRIPT, address],
            capture_output=True,
            text=True,
            timeout=CONNECT_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
        raise _no_cluster(address, said, why=f"no answer within {CONNECT_TIMEOUT:.0f} s") from error
    if trial.returncode:
        raise _no_cluster(address, trial.stderr)


def _no_cluster(address: str, said: str, why: str = "") -> RegttaError:
    """Return the error for a failed connection: ``said`` is Ray's message, ``why`` overrides it as the reason."""
    if "AuthToken" in said or "AuthenticationError" in said:
        return RegttaError(
            f"The Ray cluster at {address} requires a token: set RAY_AUTH_MODE and the token, see {_TOKENS}."
        )
    why = why or _first_sentence(said)
    if address == LOCAL:
        return RegttaError(f"Ray could not be started on this machine: {why}.")
    if address == AUTO:
        return RegttaError(
            f"No Ray cluster was found on this machine ({why}). Start one with ray start, or pass its address."
        )
    return RegttaError(
        f"No Ray cluster answers at {address} ({why}). HOST:PORT is for machines that are part of the cluster, "
        "ray://HOST:PORT (default port 10001) for all others."
    )


def _first_sentence(said: str) -> str:
    r"""Return the first sentence of a message, or of the error at the end of a traceback.

    Example:
        >>> _first_sentence("Traceback:\n  File 1\nray.RayError: No way. Try\nthis.")
        'ray.RayError: No way'
    """
    last = re.split(r"\n(?=[\w.]+(?:Error|Exception): )", said)[-1]
    return " ".join(last.split()).partition(". ")[0].rstrip(".")[:_MAX_REASON_LENGTH]


_MIN_SUBMITTED = 256  # least number of submitted tasks, so that a growing cluster has work at once
_GPU_UNITS = 10_000  # Ray counts GPUs in units of 1 / 10,000


@dataclass(frozen=True)
class TaskResources:
    """Resources of one task.

    Attributes:
        cpus: CPUs reserved for the task.
        gpus: GPUs reserved for the task; a fraction if several tasks share one.
        max_submitted: largest number of tasks submitted at a time; those without free resources wait.
    """

    cpus: int
    gpus: float
    max_submitted: int

    def fits(self, machine: Machine) -> bool:
        """Return True if a machine has enough resources for a task."""
        return machine.cpus >= self.cpus and machine.gpus >= self.gpus


def compute_task_resources(machines: Sequence[Machine], jobs: int | None, *, device: str, small: bool) -> TaskResources:
    """Return the resources per task such that ``jobs`` tasks fill the cluster.

    Without ``jobs``, a task takes one CPU or one GPU. With ``jobs``, the CPUs are divided evenly among the tasks (small
    models take one), and tasks share GPUs if there are more tasks than GPUs.

    Args:
        machines: the machines of the cluster.
        jobs: number of concurrent tasks; None for as many as the resources allow.
        device: device that tasks run on.
        small: True if all models are so small that one CPU is enough.

    Raises:
        RegttaError: if no machine has the resources.
        OptionError: if ``device`` names a particular GPU.

    Example:
        >>> machines = [Machine("a", "1", cpus=16, gpus=0), Machine("b", "2", cpus=8, gpus=0)]
        >>> compute_task_resources(machines, 4, device="cpu", small=False).cpus
        6
    """
    if device.startswith("cuda"):
        return _gpu_resources(machines, jobs, device)
    largest = max((math.floor(machine.cpus) for machine in machines), default=0)
    if largest < 1:
        raise RegttaError("No machine of the Ray cluster has a CPU available. Start one with ray start --num-cpus.")
    total = sum(math.floor(machine.cpus) for machine in machines)
    cpus = 1 if small or jobs is None else max(1, min(total // jobs, largest))
    return TaskResources(cpus, 0.0, jobs or max(_MIN_SUBMITTED, 2 * total))


def _gpu_resources(machines: Sequence[Machine], jobs: int | None, device: str) -> TaskResources:
    if device != "cuda":
        raise OptionError(f"Expected --device cuda with --ray, which assigns the GPUs itself, found {device}.")
    total = sum(math.floor(machine.gpus) for machine in machines if machine.cpus >= 1)
    if total < 1:
        names = ", ".join(machine.name for machine in machines)
        raise RegttaError(
            f"No machine of the Ray cluster has a GPU available ({names}). Use --device cpu, or add a machine with one."
        )
    sharing = 1 if jobs is None else math.ceil(jobs / total)
    return TaskResources(1, math.floor(_GPU_UNITS / sharing) / _GPU_UNITS, jobs or max(_MIN_SUBMITTED, 2 * total))
