"""The training loop: optimizer steps, progress, and checkpoints that resume it."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from regtta.errors import InvalidFileError, OptionError
from regtta.persistence import atomic_write, convert_errors, load_tensors
from regtta_bench.data import Domain
from regtta_bench.training.recipe import Recipe, Regression, train_transform

CHECKPOINT_SECONDS = 60.0  # seconds between two checkpoints: seldom enough to cost nothing, often enough to lose little


@dataclass(frozen=True, eq=False)
class TrainingState:
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

    def state_dict(self) -> dict[str, Any]:
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

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        for module, values in zip(self.modules, state["modules"], strict=True):
            module.load_state_dict(values)
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        torch.set_rng_state(state["drawn"].cpu())
        if state["drawn_there"] is not None:
            torch.cuda.set_rng_state(state["drawn_there"].cpu(), self.device)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])


class TrainingCheckpoint:
    """File with the state of a training after some epoch.

    Args:
        path: path of the file; None to write none.
        every: minimum number of seconds between two writes.
    """

    def __init__(self, path: Path | None, *, every: float = CHECKPOINT_SECONDS) -> None:
        self.path = path
        self._every = every
        self._last = time.monotonic()

    def resume(self, state: TrainingState) -> int:
        """Restore ``state`` from the file and return the number of completed epochs; 0 if there is no file."""
        if self.path is None or not self.path.exists():
            return 0
        path = self.path
        with convert_errors(
            lambda why: InvalidFileError(
                f"{path} is not a checkpoint of this training ({why}). Remove it to train from the start."
            )
        ):
            content: Any = load_tensors(path, state.device)
            state.load_state_dict(content["trained"])
            return int(content["epochs"])

    def save(self, state: TrainingState, epochs: int) -> None:
        """Write the state after ``epochs`` epochs, unless the last write is too recent."""
        if self.path is None or time.monotonic() - self._last < self._every:
            return
        with atomic_write(self.path) as draft:
            torch.save({"epochs": epochs, "trained": state.state_dict()}, draft)
        self._last = time.monotonic()

    def clear(self) -> None:
        """Remove the file once the training is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


_EAGER_STEPS = 5  # before capture, because libraries choose their kernels in the first steps


class Objective(Protocol):
    """Loss to minimise, optionally with modules of its own that are trained with the model."""

    @property
    def modules(self) -> list[nn.Module]:
        """Modules trained with the model."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the scalar loss of one batch, by the same operations at every step."""

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Update schedules before a step; ``progress`` in [0, 1) is the completed share of the training."""


class TrainingStep:
    """One parameter update: eager at first, then replayed from a CUDA graph if ``captured``.

    Args:
        model: model to train.
        objective: loss to minimise.
        optimizer: optimizer of all trained modules.
        mixed_precision: run forward passes on a GPU in bfloat16.
        captured: capture the step as a CUDA graph, for batches on a GPU.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        *,
        mixed_precision: bool,
        captured: bool,
    ) -> None:
        self._model, self._objective, self._optimizer = model, objective, optimizer
        self._mixed_precision, self._captured = mixed_precision, captured
        self._steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._inputs = self._targets = torch.empty(0)

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        """Update the parameters on one batch; every batch must have the same shape."""
        if not self._captured:
            self._update(inputs, targets)
            return
        if self._graph is None and self._steps < _EAGER_STEPS:
            self._warm_up(inputs, targets)
        else:
            if self._graph is None:
                self._capture(inputs, targets)
            self._inputs.copy_(inputs)
            self._targets.copy_(targets)
            if self._graph is not None:
                self._graph.replay()
        self._steps += 1

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self._precision(inputs):
            loss = self._objective.loss(self._model, inputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def _precision(self, inputs: Tensor) -> AbstractContextManager[object]:
        if not (self._mixed_precision and inputs.is_cuda):
            return nullcontext()
        # Autocast's cache would keep weights cast in the eager steps, which a captured step must not read.
        return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)

    def _warm_up(self, inputs: Tensor, targets: Tensor) -> None:
        # A step must have run on a side stream before it can be captured.
        self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._update(inputs, targets)
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self, inputs: Tensor, targets: Tensor) -> None:
        self._inputs, self._targets = inputs.clone(), targets.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._update(self._inputs, self._targets)


EpochCallback = Callable[[int, int], None]


def train(
    model: nn.Module,
    source: Domain,
    recipe: Recipe,
    *,
    seed: int,
    objective: Objective | None = None,
    on_epoch: EpochCallback | None = None,
    checkpoint: TrainingCheckpoint | None = None,
) -> nn.Module:
    """Train ``model`` in place on ``source`` by ``recipe``, and return it in eval mode.

    Args:
        model: initialised model, on the device to train on.
        source: training data; moved to that device as a whole.
        recipe: hyperparameters.
        seed: seed of the sample order, of the crops and of the random draws of the objective.
        objective: loss to minimise; mean squared error by default.
        on_epoch: callback after each epoch, with the number of completed epochs and of all epochs.
        checkpoint: file to resume from if it exists, and to write the state to on the way.
    """
    objective = objective or Regression()
    device = next(model.parameters()).device
    source = source.to(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)  # for the random draws of an objective
        _train_epochs(
            model,
            source,
            recipe,
            objective,
            seed=seed,
            on_epoch=on_epoch or (lambda *_: None),
            checkpoint=checkpoint or TrainingCheckpoint(None),
        )
    return model.eval()


def _train_epochs(
    model: nn.Module,
    source: Domain,
    recipe: Recipe,
    objective: Objective,
    *,
    seed: int,
    on_epoch: EpochCallback,
    checkpoint: TrainingCheckpoint,
) -> None:
    device = source.inputs.device
    steps = len(source) // recipe.batch_size
    if steps == 0:
        raise OptionError(f"Expected at least {recipe.batch_size} samples to train on, found {len(source)}.")
    modules = (model, *(module.to(device) for module in objective.modules))
    for module in modules:
        module.train()
    memory_format = _choose_memory_format(model, source.inputs)
    # One cycle also changes Adam's momentum, a plain number that a captured step would not see change.
    captured = device.type == "cuda" and recipe.schedule == "constant"
    optimizer = _optimizer(modules, recipe, device, captured=captured)
    schedule = _schedule(optimizer, recipe, steps)
    step = TrainingStep(model, objective, optimizer, mixed_precision=recipe.mixed_precision, captured=captured)
    state = TrainingState(modules, optimizer, torch.Generator().manual_seed(seed), device, schedule)
    completed = checkpoint.resume(state)
    for epoch in range(completed, recipe.epochs):
        for number, (inputs, targets) in enumerate(_batches(source, recipe, steps, state.generator)):
            objective.advance((epoch * steps + number) / (recipe.epochs * steps), optimizer)
            step(inputs.contiguous(memory_format=memory_format), targets)
            if schedule is not None:
                schedule.step()
        checkpoint.save(state, epoch + 1)
        on_epoch(epoch + 1, recipe.epochs)
    model.to(memory_format=torch.contiguous_format)
    checkpoint.clear()


def _choose_memory_format(model: nn.Module, inputs: Tensor) -> torch.memory_format:
    """Convert an image model on a GPU to channels-last, and return the memory format of its batches."""
    if not inputs.is_cuda or inputs.ndim != 4:
        return torch.contiguous_format
    model.to(memory_format=torch.channels_last)
    return torch.channels_last


def _optimizer(
    modules: tuple[nn.Module, ...], recipe: Recipe, device: torch.device, *, captured: bool
) -> torch.optim.Optimizer:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    lr = torch.tensor(recipe.lr, device=device) if captured else recipe.lr
    make = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
    # The fused implementation updates all parameters in one kernel; on a CPU it would change published results.
    return make(parameters, lr=lr, weight_decay=recipe.weight_decay, capturable=captured, fused=captured)


def _schedule(optimizer: torch.optim.Optimizer, recipe: Recipe, steps: int) -> OneCycleLR | None:
    if recipe.schedule == "constant":
        return None
    return OneCycleLR(optimizer, max_lr=recipe.lr, total_steps=recipe.epochs * steps)


def _batches(source: Domain, recipe: Recipe, steps: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of one epoch in a new random order, with newly drawn augmentations."""
    order = torch.randperm(len(source), generator=generator)[: steps * recipe.batch_size]
    for rows in torch.split(order.to(source.inputs.device), recipe.batch_size):
        yield train_transform(source.inputs[rows], recipe, generator), source.targets[rows]
