"""The training loop: the whole data on the device, no Python a sample, the step captured where a GPU is there."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

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
    """Train ``model`` in place on ``source`` by ``recipe``, and give it back in eval mode.

    Args:
        model: as initialised, on the device to train on.
        source: what to learn; moved to that device whole.
        recipe: how.
        seed: of the order of samples and of the crops.
        objective: what to minimise; mean squared error by default.
        advance: told after each epoch how many are done, and how many there are.
        checkpoint: where to keep the state on the way, and to go on from if there is one.
    """
    objective = objective or Regression()
    device = next(model.parameters()).device
    source = source.to(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)  # for what an objective draws
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
    optimizer = _adam(modules, recipe, device)
    step = TrainingStep(model, objective, optimizer, mixed_precision=recipe.mixed_precision)
    trained = Trained(modules, optimizer, torch.Generator().manual_seed(seed), device)
    begun = checkpoint.resume(trained)
    for epoch in range(begun, recipe.epochs):
        for number, (inputs, targets) in enumerate(_batches(source, recipe, steps, trained.generator)):
            objective.advance((epoch * steps + number) / (recipe.epochs * steps), optimizer)
            step(inputs.contiguous(memory_format=layout), targets)
        checkpoint.keep(trained, epoch + 1)
        advance(epoch + 1, recipe.epochs)
    model.to(memory_format=torch.contiguous_format)
    checkpoint.clear()


def _fast_layout(model: nn.Module, inputs: Tensor) -> torch.memory_format:
    """Put a model of images on a GPU into channels-last layout, and say in which layout it takes batches."""
    if not inputs.is_cuda or inputs.ndim != 4:
        return torch.contiguous_format
    model.to(memory_format=torch.channels_last)
    return torch.channels_last


def _adam(modules: tuple[nn.Module, ...], recipe: Recipe, device: torch.device) -> torch.optim.Adam:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    captured = device.type == "cuda"
    lr = torch.tensor(recipe.lr, device=device) if captured else recipe.lr
    return torch.optim.Adam(parameters, lr=lr, weight_decay=recipe.weight_decay, capturable=captured)


def _batches(source: Domain, recipe: Recipe, steps: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch in a new order, images newly drawn."""
    order = torch.randperm(len(source), generator=generator)[: steps * recipe.batch_size]
    for rows in torch.split(order.to(source.inputs.device), recipe.batch_size):
        yield training_view(source.inputs[rows], recipe, generator), source.targets[rows]
