"""Checkpoints of a training, from which an interrupted one resumes bit for bit."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from regtta.errors import ForeignFileError
from regtta.files import load_tensors, written_whole
from regtta.reading import clear_errors

EVERY = 60.0  # seconds between two checkpoints: seldom enough to cost nothing, often enough to lose little


@dataclass(frozen=True, eq=False)
class Trained:
    """Mutable state of a training.

    Attributes:
        modules: the model and the modules trained with it.
        optimizer: optimizer of all modules.
        generator: generator of the sample order and of the crops.
        device: device of the training; random draws of an objective come from torch's global generator there.
        schedule: schedule of the learning rate; None for a constant one.
    """

    modules: tuple[nn.Module, ...]
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    device: torch.device
    schedule: LRScheduler | None = None

    def state(self) -> dict[str, Any]:
        """Return the state as tensors and plain values."""
        schedule = {} if self.schedule is None else {"schedule": self.schedule.state_dict()}
        return {
            "modules": [module.state_dict() for module in self.modules],
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "drawn": torch.get_rng_state(),
            "drawn_there": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            **schedule,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state`."""
        for module, values in zip(self.modules, state["modules"], strict=True):
            module.load_state_dict(values)
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        torch.set_rng_state(state["drawn"].cpu())
        if state["drawn_there"] is not None:
            torch.cuda.set_rng_state(state["drawn_there"].cpu(), self.device)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])


class Checkpoint:
    """File with the state of a training after some epoch.

    Args:
        path: path of the file; None to write none.
        every: minimum number of seconds between two writes.
    """

    def __init__(self, path: Path | None, *, every: float = EVERY) -> None:
        self.path = path
        self._every = every
        self._last = time.monotonic()

    def resume(self, trained: Trained) -> int:
        """Restore ``trained`` from the file and return the number of completed epochs; 0 if there is no file."""
        if self.path is None or not self.path.exists():
            return 0
        path = self.path
        with clear_errors(
            lambda why: ForeignFileError(
                f"{path} is not a checkpoint of this training ({why}). Remove it to train from the start."
            )
        ):
            content: Any = load_tensors(path, trained.device)
            trained.load(content["trained"])
            return int(content["epochs"])

    def keep(self, trained: Trained, epochs: int) -> None:
        """Write the state after ``epochs`` epochs, unless the last write is too recent."""
        if self.path is None or time.monotonic() - self._last < self._every:
            return
        with written_whole(self.path) as draft:
            torch.save({"epochs": epochs, "trained": trained.state()}, draft)
        self._last = time.monotonic()

    def clear(self) -> None:
        """Remove the file once the training is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
