"""What goes wrong with the scanner: pure functions of images (N, 1, 32, 32) in [0, 1].

A scanner records nothing below black or above white, so every degradation ends within [0, 1].
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor


class Degradation(ABC):
    """One way for an image to go wrong. Abstract."""

    @property
    @abstractmethod
    def setting(self) -> str:
        """How strong it is, in a few characters."""

    @abstractmethod
    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The degraded images, of the same shape; ``generator`` is for those that draw at random."""


@dataclass(frozen=True)
class Darken(Degradation):
    """``factor · x``."""

    factor: float

    @property
    def setting(self) -> str:
        """The factor."""
        return f"×{self.factor:g}"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Multiply.

        Example:
            >>> Darken(0.25).apply(torch.ones(1, 1, 1, 1), torch.Generator()).item()
            0.25
        """
        return (images * self.factor).clamp(0, 1)


@dataclass(frozen=True)
class Brighten(Degradation):
    """``x + offset``, saturating at white."""

    offset: float

    @property
    def setting(self) -> str:
        """The offset."""
        return f"+{self.offset:g}"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Add and saturate."""
        return (images + self.offset).clamp(0, 1)


@dataclass(frozen=True)
class Blur(Degradation):
    """A Gaussian of standard deviation ``sigma`` pixels; beyond the border the edge goes on."""

    sigma: float

    @property
    def setting(self) -> str:
        """The standard deviation."""
        return f"σ = {self.sigma:g} px"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Blur along rows, then along columns."""
        reach = max(1, round(3 * self.sigma))
        offsets = torch.arange(-reach, reach + 1, dtype=images.dtype)
        kernel = torch.exp(-0.5 * (offsets / self.sigma) ** 2)
        kernel = kernel / kernel.sum()
        padded = F.pad(images, (reach, reach, reach, reach), mode="replicate")
        rows = F.conv2d(padded, kernel.view(1, 1, 1, -1))
        # Rounding may end a hair above white.
        return F.conv2d(rows, kernel.view(1, 1, -1, 1)).clamp(0, 1)


@dataclass(frozen=True)
class Noise(Degradation):
    """``x + sd · ε`` with ε of the standard normal distribution, cut off at black and white."""

    sd: float

    @property
    def setting(self) -> str:
        """The standard deviation."""
        return f"sd {self.sd:g}"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draw for every pixel and add."""
        noise = torch.randn(images.shape, generator=generator, dtype=images.dtype)
        return (images + self.sd * noise).clamp(0, 1)


@dataclass(frozen=True)
class Contrast(Degradation):
    """``x̄ + factor · (x − x̄)`` around the mean x̄ of each image."""

    factor: float

    @property
    def setting(self) -> str:
        """The factor."""
        return f"×{self.factor:g}"

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Pull every pixel to the mean of its image."""
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
