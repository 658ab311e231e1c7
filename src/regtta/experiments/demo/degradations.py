"""Image degradations of a scanner: pure functions of images ``(N, 1, 32, 32)`` in [0, 1].

A scanner records nothing below black or above white, so every result is clamped to [0, 1].
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own alias
from torch import Tensor


class Degradation(ABC):
    """Abstract base of image degradations."""

    @property
    @abstractmethod
    def setting(self) -> str:
        """Severity as a short label."""

    @abstractmethod
    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the degraded images, of the same shape; ``generator`` supplies any random draws."""


@dataclass(frozen=True)
class Darken(Degradation):
    """Multiplication: ``factor · x``."""

    factor: float

    @property
    def setting(self) -> str:
        """Factor as a label."""
        return f"×{self.factor:g}"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return ``factor · images``.

        Example:
            >>> Darken(0.25).apply(torch.ones(1, 1, 1, 1), torch.Generator()).item()
            0.25
        """
        return (images * self.factor).clamp(0, 1)


@dataclass(frozen=True)
class Brighten(Degradation):
    """Addition: ``x + offset``, clamped at white."""

    offset: float

    @property
    def setting(self) -> str:
        """Offset as a label."""
        return f"+{self.offset:g}"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return ``images + offset``, clamped."""
        return (images + self.offset).clamp(0, 1)


@dataclass(frozen=True)
class Blur(Degradation):
    """Gaussian blur of standard deviation ``sigma`` pixels, with replicated borders."""

    sigma: float

    @property
    def setting(self) -> str:
        """Standard deviation as a label."""
        return f"σ = {self.sigma:g} px"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return the images blurred along rows, then along columns."""
        reach = max(1, round(3 * self.sigma))
        offsets = torch.arange(-reach, reach + 1, dtype=images.dtype)
        kernel = torch.exp(-0.5 * (offsets / self.sigma) ** 2)
        kernel = kernel / kernel.sum()
        padded = F.pad(images, (reach, reach, reach, reach), mode="replicate")
        rows = F.conv2d(padded, kernel.view(1, 1, 1, -1))
        # Rounding may exceed 1 slightly.
        return F.conv2d(rows, kernel.view(1, 1, -1, 1)).clamp(0, 1)


@dataclass(frozen=True)
class Noise(Degradation):
    """Gaussian noise: ``x + sd · ε`` with standard normal ε, clamped at black and white."""

    sd: float

    @property
    def setting(self) -> str:
        """Standard deviation as a label."""
        return f"sd {self.sd:g}"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the images with independent noise added to every pixel."""
        noise = torch.randn(images.shape, generator=generator, dtype=images.dtype)
        return (images + self.sd * noise).clamp(0, 1)


@dataclass(frozen=True)
class Contrast(Degradation):
    """Contrast change: ``x̄ + factor · (x − x̄)`` with the mean x̄ of each image."""

    factor: float

    @property
    def setting(self) -> str:
        """Factor as a label."""
        return f"×{self.factor:g}"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return the images with every pixel scaled about the mean of its image."""
        mean = images.mean(dim=(1, 2, 3), keepdim=True)
        return (mean + self.factor * (images - mean)).clamp(0, 1)


DEGRADATIONS: Mapping[str, Degradation] = MappingProxyType(
    {
        "darkened": Darken(0.25),
        "brightened": Brighten(0.5),
        "blurred": Blur(3.0),
        "noisy": Noise(0.3),
        "contrast": Contrast(0.15),
    }
)
