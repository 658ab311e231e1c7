"""Executor of runs on a Ray cluster."""

from collections.abc import Sequence

from regtta._version import __version__
from regtta.errors import RegttaError
from regtta.experiments.reproduce.crews.dealing import all_small, threads_of
from regtta.experiments.reproduce.crews.elsewhere import made_by
from regtta.experiments.reproduce.crews.on_ray.claiming import Claim, claim_of
from regtta.experiments.reproduce.crews.on_ray.failures import disconnected, is_loss, raised
from regtta.experiments.reproduce.crews.on_ray.machines import machines, on_each
from regtta.experiments.reproduce.crews.on_ray.source_files import marked
from regtta.experiments.reproduce.crews.on_ray.staff import RayStaff
from regtta.experiments.reproduce.crews.on_ray.tasks import Order, check_machine
from regtta.experiments.reproduce.roles import Kit, Listener, Made, S

_PATIENCE = 300.0  # timeout in seconds: starting a process and importing torch from a slow disk takes long


class OnRay:
    """Executor on all machines of the Ray cluster that this process is connected to.

    Args:
        jobs: number of concurrent runs; None for as many as the resources allow.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs

    def best_device(self) -> str:
        """Return ``"cuda"`` if any machine has a GPU, else ``"cpu"``."""
        return "cuda" if any(machine.gpus >= 1 for machine in machines()) else "cpu"

    def check(self, specs: Sequence[S], tools: Kit[S]) -> None:
        """Raise if data or weights are missing on a machine that has the resources to execute runs."""
        import ray
        from ray.exceptions import RayError

        claim = self._claim(specs, tools)
        try:
            able = [machine for machine in machines() if claim.fits(machine)]
            asked = on_each(able, check_machine, ray.put((tools, specs)), __version__)
            answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_PATIENCE)
        except (ConnectionError, ImportError) as error:  # the head node unpickles the arguments, too
            raise disconnected(error) from error
        for answer in answered:
            try:
                ray.get(answer)
            except RayError as error:
                if not is_loss(error):  # a lost machine takes no part in the sweep
                    raise raised(error, asked[answer].name) from error
        if silent:
            names = ", ".join(asked[answer].name for answer in silent)
            raise RegttaError(f"No answer within {_PATIENCE:.0f} s from {names}. Check that Ray works there.")

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """Yield runs as they complete; tasks of lost workers or machines are executed again."""
        claim = self._claim(specs, tools)
        with marked(tools.models) as mark:
            staff = RayStaff(Order(tools, mark, threads_of(specs, claim.cpus)), claim)
            try:
                yield from made_by(staff, specs, listener)
            finally:
                staff.dismiss()

    def _claim(self, specs: Sequence[S], tools: Kit[S]) -> Claim:
        return claim_of(machines(), self.jobs, device=tools.device, small=all_small(specs))
