"""Sequential execution of runs in this process."""

from collections.abc import Sequence

import torch

from regtta.experiments.reproduce.crews.dealing import by_source, threads_of
from regtta.experiments.reproduce.roles import Kit, Listener, Made, S


class OnThisMachine:
    """Base class of executors that run on this machine only. Abstract."""

    def best_device(self) -> str:
        """Return ``"cuda"`` if a GPU is available, else ``"cpu"``."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def check(self, specs: Sequence[S], tools: Kit[S]) -> None:
        """Raise if data or weights that the runs need are missing on this machine."""
        tools.check(specs)


class Here(OnThisMachine):
    """Executor that runs sequentially in the calling process."""

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """Execute the runs grouped by source model, and yield them as they complete."""
        worker, threads = tools.worker(listener.training), torch.get_num_threads()
        torch.set_num_threads(threads_of(specs, threads))
        try:
            for group in by_source(specs):
                for spec in group:
                    yield spec, worker.run(spec)
        finally:
            torch.set_num_threads(threads)
