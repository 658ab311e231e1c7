"""One entry of the catalogue."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from regtta.models import BatchReader

Draw = Callable[..., Any]
ROWS = 12


@dataclass(frozen=True)
class Architecture:
    """A small model with random weights, and its batches.

    Attributes:
        name: name of the entry.
        family: library or kind of model.
        factory: creates the model.
        draw: returns a random batch, ``draw(rows, seed, shift)``, as a data loader would yield it.
        head: the head that must be found.
        width: number of features.
        inputs, output, features: arguments of ``collect`` and ``Adapter``, where they are needed.
        exports: file formats beside a state dict that the tests write.
    """

    name: str
    family: str
    factory: Callable[[], nn.Module]
    draw: Draw
    head: str
    width: int
    inputs: Any = None
    output: Any = None
    features: Any = None
    exports: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def interface(self) -> dict[str, Any]:
        """The arguments ``inputs``, ``output`` and ``features`` that are given."""
        given = {"inputs": self.inputs, "output": self.output, "features": self.features}
        return {name: value for name, value in given.items() if value is not None}

    def make(self, seed: int = 0) -> nn.Module:
        """Return the model in eval mode, with the running statistics of BatchNorm of the source data."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.factory()
            if any(isinstance(module, _BatchNorm) for module in model.modules()):
                self._update_running_statistics(model)
            return model.eval()

    @torch.no_grad()
    def _update_running_statistics(self, model: nn.Module) -> None:
        model.train()
        layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.momentum = None  # the mean over all batches
        read = BatchReader(model, self.inputs)
        for seed in (1, 2, 3):
            inputs = read(self.draw(ROWS, seed, 0.0))
            model(inputs) if isinstance(inputs, Tensor) else model(*inputs.args, **inputs.kwargs)
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

    def source_batches(self) -> list[Any]:
        """Return batches of the source data."""
        return [self.draw(ROWS, seed, 0.0) for seed in (1, 2, 3)]

    def target_batches(self) -> list[Any]:
        """Return batches of shifted data."""
        return [self.draw(ROWS, seed, 1.0) for seed in (11, 12, 13)]


def generator(seed: int) -> torch.Generator:
    """Return a seeded generator."""
    return torch.Generator().manual_seed(seed)


def draw_table(*shape: int) -> Draw:
    """Return a function that draws inputs ``(B, *shape)``, shifted and scaled, with labels ``(B,)``."""

    def draw(rows: int, seed: int, shift: float = 0.0) -> tuple[Tensor, Tensor]:
        noise = torch.randn(rows, *shape, generator=generator(seed))
        return noise * (1 + 0.5 * shift) + 0.7 * shift, noise.flatten(1).mean(dim=1)

    return draw


def draw_images(size: int, channels: int = 3) -> Draw:
    """Return a function that draws images ``(B, C, size, size)`` with patterns of their own, darkened by the shift."""

    def draw(rows: int, seed: int, shift: float = 0.0) -> Tensor:
        coarse = torch.rand(rows, channels, 4, 4, generator=generator(seed))
        images = torch.nn.functional.interpolate(coarse, size=(size, size))
        return (images + 0.2 * torch.rand(images.shape, generator=generator(seed + 100))) * (1 - 0.6 * shift)

    return draw


def draw_tokens(*, length: int = 9, vocabulary: int = 60, mask: bool = True, labels: bool = False) -> Draw:
    """Return a function that draws dicts of token ids ``(B, T)`` of different lengths, padded with 0 on the right.

    T is at most ``length`` and differs from batch to batch.
    """

    def draw(rows: int, seed: int, shift: float = 0.0) -> dict[str, Tensor]:
        random = generator(seed)
        low, high = (3, vocabulary // 2) if not shift else (vocabulary // 3, vocabulary)
        longest = length - seed % 3
        ids = torch.randint(low, high, (rows, longest), generator=random)
        kept = torch.arange(longest) < torch.randint(longest // 2, longest + 1, (rows, 1), generator=random)
        batch = {"input_ids": ids * kept}
        if mask:
            batch["attention_mask"] = kept.long()
        if labels:
            batch["labels"] = torch.rand(rows, generator=random)
        return batch

    return draw
