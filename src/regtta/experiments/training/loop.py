"""Training loop of source models: the data stay on the device, and on a GPU the step is a captured CUDA graph."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from regtta.errors import OptionError
from regtta.experiments.datasets import Domain
from regtta.experiments.training.checkpoint import Checkpoint, Trained
from regtta.experiments.training.losses import Regression
from regtta.experiments.training.recipe import Recipe
from regtta.experiments.training.step import Objective, TrainingStep
from regtta.experiments.training.views import training_view

Told = Callable[[int, int], None]


def train(
    model: nn.Module,
    source: Domain,
    recipe: Recipe,
    *,
    seed: int,
    objective: Objective | None = None,
    advance: Told | None = None,
    checkpoint: Checkpoint | None = None,
) -> nn.Module:
    """Train ``model`` in place on ``source`` by ``recipe``, and return it in eval mode.

    Args:
        model: initialised model, on the device to train on.
        source: training data; moved to that device as a whole.
        recipe: hyperparameters.
        seed: seed of the sample order, of the crops and of the random draws of the objective.
        objective: loss to minimise; mean squared error by default.
        advance: callback after each epoch, with the number of completed epochs and of all epochs.
        checkpoint: file to resume from if it exists, and to write the state to on the way.
    """
    objective = objective or Regression()
    device = next(model.parameters()).device
    source = source.to(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)  # for the random draws of an objective
        _run(
            model,
            source,
            recipe,
            objective,
            seed=seed,
            advance=advance or (lambda *_: None),
            checkpoint=checkpoint or Checkpoint(None),
        )
    return model.eval()


def _run(
    model: nn.Module,
    source: Domain,
    recipe: Recipe,
    objective: Objective,
    *,
    seed: int,
    advance: Told,
    checkpoint: Checkpoint,
) -> None:
    device = source.inputs.device
    steps = len(source) // recipe.batch_size
    if steps == 0:
        raise OptionError(f"Expected at least {recipe.batch_size} samples to train on, found {len(source)}.")
    modules = (model, *(module.to(device) for module in objective.modules))
    for module in modules:
        module.train()
    layout = _fast_layout(model, source.inputs)
    # One cycle also changes Adam's momentum, a plain number that a captured step would not see change.
    captured = device.type == "cuda" and recipe.schedule == "constant"
    optimizer = _optimizer(modules, recipe, device, captured=captured)
    schedule = _schedule(optimizer, recipe, steps)
    step = TrainingStep(model, objective, optimizer, mixed_precision=recipe.mixed_precision, captured=captured)
    trained = Trained(modules, optimizer, torch.Generator().manual_seed(seed), device, schedule)
    begun = checkpoint.resume(trained)
    for epoch in range(begun, recipe.epochs):
        for number, (inputs, targets) in enumerate(_batches(source, recipe, steps, trained.generator)):
            objective.advance((epoch * steps + number) / (recipe.epochs * steps), optimizer)
            step(inputs.contiguous(memory_format=layout), targets)
            if schedule is not None:
                schedule.step()
        checkpoint.keep(trained, epoch + 1)
        advance(epoch + 1, recipe.epochs)
    model.to(memory_format=torch.contiguous_format)
    checkpoint.clear()


def _fast_layout(model: nn.Module, inputs: Tensor) -> torch.memory_format:
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
    return make(parameters, lr=lr, weight_decay=recipe.weight_decay, capturable=captured)


def _schedule(optimizer: torch.optim.Optimizer, recipe: Recipe, steps: int) -> OneCycleLR | None:
    if recipe.schedule == "constant":
        return None
    return OneCycleLR(optimizer, max_lr=recipe.lr, total_steps=recipe.epochs * steps)


def _batches(source: Domain, recipe: Recipe, steps: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of one epoch in a new random order, with newly drawn augmentations."""
    order = torch.randperm(len(source), generator=generator)[: steps * recipe.batch_size]
    for rows in torch.split(order.to(source.inputs.device), recipe.batch_size):
        yield training_view(source.inputs[rows], recipe, generator), source.targets[rows]
