"""One run after another, in this process."""

from collections.abc import Sequence

import torch

from regtta.experiments.reproduce.crews.dealing import by_source, threads_of
from regtta.experiments.reproduce.roles import Kit, Listener, Made, S


class OnThisMachine:
    """What all crews have in common that work on this machine alone. Not a crew by itself."""

    def best_device(self) -> str:
        """A GPU if there is one."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def check(self, specs: Sequence[S], tools: Kit[S]) -> None:
        """Raise if what the runs need is not on this machine."""
        tools.check(specs)


class Here(OnThisMachine):
    """One process, the one that asks."""

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """The runs, those of one source model one after another."""
        worker, threads = tools.worker(listener.training), torch.get_num_threads()
        torch.set_num_threads(threads_of(specs, threads))
        try:
            for group in by_source(specs):
                for spec in group:
                    yield spec, worker.run(spec)
        finally:
            torch.set_num_threads(threads)
