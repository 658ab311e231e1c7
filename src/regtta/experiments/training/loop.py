"""The training loop: the whole data on the device, no Python a sample, the step captured where a GPU is there."""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from regtta.augmentation import windows
from regtta.errors import OptionError
from regtta.experiments.datasets import Domain
from regtta.experiments.training.recipe import Recipe

_EAGER_STEPS = 5  # before a step is captured: libraries choose their kernels in these


class Objective(Protocol):
    """What is minimised. May own modules of its own, which are trained along."""

    @property
    def modules(self) -> list[nn.Module]:
        """The modules to train beside the model."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """A scalar on one batch; the same operations at every step."""

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Told before each step what share of the training is done."""


class Regression:
    """Mean squared error."""

    modules: list[nn.Module] = []  # noqa: RUF012 - an empty constant

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """``mean (f(x) − y)²``."""
        return nn.functional.mse_loss(model(inputs), targets)

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Nothing changes over the training."""


def train(
    model: nn.Module,
    source: Domain,
    recipe: Recipe,
    *,
    seed: int,
    objective: Objective | None = None,
    advance: Callable[[], None] | None = None,
) -> nn.Module:
    """Train ``model`` in place on ``source`` by ``recipe``, and give it back in eval mode.

    Args:
        model: as initialised, on the device to train on.
        source: what to learn; moved to that device whole.
        recipe: how.
        seed: of the order of samples and of the crops.
        objective: what to minimise; mean squared error by default.
        advance: called after each epoch.
    """
    objective = objective or Regression()
    device = next(model.parameters()).device
    source = source.to(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)  # for what an objective draws
        _run(model, source, recipe, objective, seed=seed, advance=advance)
    return model.eval()


def _run(
    model: nn.Module,
    source: Domain,
    recipe: Recipe,
    objective: Objective,
    *,
    seed: int,
    advance: Callable[[], None] | None,
) -> None:
    device = source.inputs.device
    steps = len(source) // recipe.batch_size
    if steps == 0:
        raise OptionError(f"Expected at least {recipe.batch_size} samples to train on, found {len(source)}.")
    for module in objective.modules:
        module.to(device).train()
    optimizer = _adam([model, *objective.modules], recipe, device)
    step = _Step(model.train(), objective, optimizer)
    generator = torch.Generator().manual_seed(seed)
    done = 0
    for _ in range(recipe.epochs):
        for inputs, targets in _batches(source, recipe, steps, generator):
            objective.advance(done / (recipe.epochs * steps), optimizer)
            step(inputs, targets)
            done += 1
        if advance is not None:
            advance()


def _adam(modules: list[nn.Module], recipe: Recipe, device: torch.device) -> torch.optim.Adam:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    captured = device.type == "cuda"
    lr = torch.tensor(recipe.lr, device=device) if captured else recipe.lr
    return torch.optim.Adam(parameters, lr=lr, weight_decay=recipe.weight_decay, capturable=captured)


class _Step:
    """One update: eager at first, then, on a GPU, replayed from a captured graph."""

    def __init__(self, model: nn.Module, objective: Objective, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._objective, self._optimizer = model, objective, optimizer
        self._taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._inputs = self._targets = torch.empty(0)

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        if not inputs.is_cuda:
            self._update(inputs, targets)
            return
        if self._graph is None and self._taken < _EAGER_STEPS:
            self._aside(inputs, targets)
        else:
            if self._graph is None:
                self._capture(inputs, targets)
            self._inputs.copy_(inputs)
            self._targets.copy_(targets)
            if self._graph is not None:
                self._graph.replay()
        self._taken += 1

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._objective.loss(self._model, inputs, targets).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def _aside(self, inputs: Tensor, targets: Tensor) -> None:
        # What is to be captured must have run on a stream of its own before.
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


def _batches(source: Domain, recipe: Recipe, steps: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch in a new order, images newly cropped."""
    order = torch.randperm(len(source), generator=generator)[: steps * recipe.batch_size]
    for rows in torch.split(order.to(source.inputs.device), recipe.batch_size):
        inputs = source.inputs[rows]
        if recipe.crop_padding:
            inputs = random_crop(inputs, recipe.crop_padding, generator)
        yield inputs, source.targets[rows]


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Images (B, C, H, W), each cropped back to its size at random out of ``padding`` black pixels around it."""
    count, _, height, width = images.shape
    padded = nn.functional.pad(images, (padding,) * 4)
    corner = torch.randint(2 * padding + 1, (2, count, 1), generator=generator)
    return windows(padded, torch.arange(height) + corner[0], torch.arange(width) + corner[1])
