"""What a run of the benchmarks is told: where, on what, and how thoroughly."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.speed.timing import Effort
from regtta.errors import OptionError

ON_CPU = Effort(warm_calls=3)
ON_GPU = Effort(warm_calls=12)  # compiled at the first, captured after a few
QUICK = Effort(rounds=3, seconds=1.0, sample_seconds=0.0, most_calls=1, warm_calls=6)


@dataclass(frozen=True)
class Bench:
    """How to measure.

    Attributes:
        device: what is measured.
        out: folder of the results.
        quick: sizes for a smoke run, whose numbers mean nothing.
        effort: of a comparison.
        data: folder of the real data sets, where there are any.
        models: folder of trained source models; those that are missing are trained and kept there.
        sources: how many source models stand behind a score.
        threads: of torch, on a CPU. Where other work has its share of the cores, threads that wait for each other
            measure that work, so it is one.
    """

    device: torch.device
    out: Path
    quick: bool = False
    effort: Effort = field(default_factory=Effort)
    data: Path | None = None
    models: Path | None = None
    sources: int = 5
    threads: int = 1

    @property
    def on_gpu(self) -> bool:
        """Whether absolute times mean anything: other work takes its share of a CPU."""
        return self.device.type == "cuda"

    @property
    def kept_models(self) -> Path:
        """Where trained source models lie."""
        return self.models or self.out.with_name(f"{self.out.name}-models")

    def require_data(self, name: str) -> Path:
        """The folder of the data sets, for a case that cannot do without."""
        if self.data is None:
            raise OptionError(f"{name} needs its data. Pass --data FOLDER, or leave the case out.")
        return self.data
