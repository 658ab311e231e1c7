"""Where a training stands, so that one that was stopped goes on as if it never had been."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regtta.errors import ForeignFileError
from regtta.files import load_tensors, written_whole
from regtta.reading import clear_errors

EVERY = 60.0  # seconds between two checkpoints: seldom enough to cost nothing, often enough to lose little


@dataclass(frozen=True, eq=False)
class Trained:
    """Everything that a training changes as it goes.

    Attributes:
        modules: the model and what is trained beside it.
        optimizer: of them all.
        generator: of the order of samples and of the crops.
        device: where it runs; what an objective draws comes from torch's own generator there.
    """

    modules: tuple[nn.Module, ...]
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    device: torch.device

    def state(self) -> dict[str, Any]:
        """As tensors and plain values."""
        return {
            "modules": [module.state_dict() for module in self.modules],
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "drawn": torch.get_rng_state(),
            "drawn_there": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to :meth:`state`."""
        for module, values in zip(self.modules, state["modules"], strict=True):
            module.load_state_dict(values)
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        torch.set_rng_state(state["drawn"].cpu())
        if state["drawn_there"] is not None:
            torch.cuda.set_rng_state(state["drawn_there"].cpu(), self.device)


class Checkpoint:
    """A file that holds the state of a training after some epoch.

    Args:
        path: of the file; None to keep none.
        every: seconds between two writes.
    """

    def __init__(self, path: Path | None, *, every: float = EVERY) -> None:
        self.path = path
        self._every = every
        self._last = time.monotonic()

    def resume(self, trained: Trained) -> int:
        """Load what is there, and say how many epochs it has behind it; 0 where nothing is."""
        if self.path is None or not self.path.exists():
            return 0
        path = self.path
        with clear_errors(
            lambda why: ForeignFileError(f"{path} is no state of this training ({why}). Remove it to train anew.")
        ):
            content: Any = load_tensors(path, trained.device)
            trained.load(content["trained"])
            return int(content["epochs"])

    def keep(self, trained: Trained, epochs: int) -> None:
        """Write the state after ``epochs`` epochs, if the last one is old enough."""
        if self.path is None or time.monotonic() - self._last < self._every:
            return
        with written_whole(self.path) as draft:
            torch.save({"epochs": epochs, "trained": trained.state()}, draft)
        self._last = time.monotonic()

    def clear(self) -> None:
        """Remove the file: the training is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
