"""Configuration of a benchmark run: device, folders and effort."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.speed.timing import Effort
from regtta.errors import OptionError

ON_CPU = Effort(warm_calls=3)
ON_GPU = Effort(warm_calls=12)  # compiled at the first call, captured after a few
QUICK = Effort(rounds=3, seconds=1.0, sample_seconds=0.0, max_calls=1, warm_calls=6)


@dataclass(frozen=True)
class Bench:
    """Configuration of a run.

    Attributes:
        device: device to measure.
        out: folder of the results.
        quick: use the sizes of a smoke test, whose numbers mean nothing.
        effort: number and length of the samples of a comparison.
        data: folder of the real data sets, if any.
        models: folder of trained source models; missing ones are trained and saved there.
        sources: number of source models per score.
        threads: number of torch's threads on a CPU. The default is one, since on shared cores the synchronisation of
            threads would measure other work.
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
        """True on a GPU, where absolute times are meaningful; a CPU is shared with other work."""
        return self.device.type == "cuda"

    @property
    def model_folder(self) -> Path:
        """Folder of trained source models."""
        return self.models or self.out.with_name(f"{self.out.name}-models")

    def require_data(self, name: str) -> Path:
        """Return the folder of the data sets; raises an error if there is none."""
        if self.data is None:
            raise OptionError(f"{name} needs its data. Pass --data FOLDER, or leave the case out.")
        return self.data
