"""The machines of a Ray cluster as a crew."""

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

_PATIENCE = 300.0  # seconds for a machine to start a process and import torch from a slow disk


class OnRay:
    """All machines of the cluster that this process is connected to.

    Args:
        jobs: runs at once; None for as many as there is room for.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs

    def best_device(self) -> str:
        """A GPU if one of the machines has one."""
        return "cuda" if any(machine.gpus >= 1 for machine in machines()) else "cpu"

    def check(self, specs: Sequence[S], tools: Kit[S]) -> None:
        """Raise if one of the machines lacks what the runs need; those with no room for a run need nothing."""
        import ray
        from ray.exceptions import RayError

        claim = self._claim(specs, tools)
        try:
            able = [machine for machine in machines() if claim.fits(machine)]
            asked = on_each(able, check_machine, ray.put((tools, specs)), __version__)
            answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_PATIENCE)
        except (ConnectionError, ImportError) as error:  # the head reads what it is sent, too
            raise disconnected(error) from error
        for answer in answered:
            try:
                ray.get(answer)
            except RayError as error:
                if not is_loss(error):  # a machine that was lost has no part in the sweep
                    raise raised(error, asked[answer].name) from error
        if silent:
            names = ", ".join(asked[answer].name for answer in silent)
            raise RegttaError(f"No answer within {_PATIENCE:.0f} s from {names}. See whether Ray is well there.")

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """The runs as they are made; what a lost worker or machine had not delivered is made again."""
        claim = self._claim(specs, tools)
        with marked(tools.models) as mark:
            staff = RayStaff(Order(tools, mark, threads_of(specs, claim.cpus)), claim)
            try:
                yield from made_by(staff, specs, listener)
            finally:
                staff.dismiss()

    def _claim(self, specs: Sequence[S], tools: Kit[S]) -> Claim:
        return claim_of(machines(), self.jobs, device=tools.device, small=all_small(specs))
