"""Input shifts that do not change labels, each at several severities, the mildest first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own alias
from torch import Tensor

from regtta.experiments.demo.degradations import Blur, Brighten, Contrast, Darken, Degradation, Noise

Change = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class InputShift:
    """One input shift at one severity.

    Attributes:
        name: name of the shift with its severity.
        level: index of the severity, from 0, the mildest.
        apply: function from inputs and a generator to the shifted inputs.
    """

    name: str
    level: int
    apply: Change


def digit_shifts() -> tuple[InputShift, ...]:
    """Return shifts of digits ``(N, 1, H, W)`` in [0, 1]: the demo's degradations, translation, gamma, occlusion."""
    degradations: Mapping[str, Sequence[Degradation]] = {
        "darkened": [Darken(factor) for factor in (0.9, 0.75, 0.5, 0.25)],
        "brightened": [Brighten(offset) for offset in (0.05, 0.15, 0.3, 0.5)],
        "blurred": [Blur(sigma) for sigma in (0.5, 1.0, 2.0, 3.0)],
        "noisy": [Noise(sd) for sd in (0.05, 0.1, 0.2, 0.3)],
        "contrast": [Contrast(factor) for factor in (0.85, 0.6, 0.3, 0.15)],
    }
    made = [
        InputShift(f"{name} {kind.setting}", level, kind.apply)
        for name, kinds in degradations.items()
        for level, kind in enumerate(kinds)
    ]
    made += _levels("moved right, px", (1, 2, 4, 6), _moved_right)
    made += _levels("gamma", (0.8, 1.5, 0.6, 2.5), lambda images, strength, _: images**strength)
    return (*made, *_levels("corner covered, px", (4, 8, 12, 16), _covered))


def table_shifts(columns: int) -> tuple[InputShift, ...]:
    """Return shifts of standardised tables ``(N, C)``: offset, scale, noise, dropped columns and missing values."""
    made = []
    for column in range(columns):
        one = F.one_hot(torch.tensor(column), columns).float()
        name = f"column {column}"
        made += _levels(f"{name} offset, sd", (0.25, 0.5, 1.0, 2.0), lambda x, size, _, one=one: x + size * one)
        made += _levels(f"{name} scaled", (0.7, 1.5, 3.0), lambda x, size, _, one=one: x * (1 + (size - 1) * one))
        made += _levels(f"{name} noise, sd", (0.5, 2.0), lambda x, size, g, one=one: x + size * _normal(x, g) * one)
        made += _levels(f"{name} imputed by the mean", (1,), lambda x, _, __, one=one: x * (1 - one))
    made += _levels("all offset, sd", (0.1, 0.25, 0.5, 1.0), lambda x, size, _: x + size)
    made += _levels("all scaled", (0.8, 1.25, 0.5, 2.0), lambda x, size, _: x * size)
    made += _levels("all noise, sd", (0.1, 0.25, 0.5, 1.0), lambda x, size, g: x + size * _normal(x, g))
    return (*made, *_levels("share missing, imputed by the mean", (0.1, 0.3, 0.6), _missing))


def _levels(name: str, strengths: Sequence[float], change: Callable[..., Tensor]) -> list[InputShift]:
    def at(strength: float) -> Change:
        return lambda inputs, generator: change(inputs, strength, generator)

    return [InputShift(f"{name} {strength:g}", level, at(strength)) for level, strength in enumerate(strengths)]


def _moved_right(images: Tensor, pixels: int, _: torch.Generator) -> Tensor:
    return F.pad(images, (pixels, 0))[..., : images.shape[-1]]


def _covered(images: Tensor, pixels: int, _: torch.Generator) -> Tensor:
    images = images.clone()
    images[..., :pixels, :pixels] = 0
    return images


def _normal(inputs: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(inputs.shape, generator=generator)


def _missing(inputs: Tensor, share: float, generator: torch.Generator) -> Tensor:
    return inputs * (torch.rand(inputs.shape, generator=generator) >= share)
