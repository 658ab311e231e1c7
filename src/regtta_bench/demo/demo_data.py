"""Digits that ship with scikit-learn, and degradations of the scanner."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own alias
from sklearn.datasets import load_digits
from torch import Tensor

from regtta.errors import OptionError
from regtta_bench.data import Domain


def make_generator(seed: int, purpose: str) -> torch.Generator:
    """Return the generator of ``seed`` and ``purpose``; the streams of different purposes are independent.

    Example:
        >>> torch.rand(1, generator=make_generator(0, "noise")) == torch.rand(1, generator=make_generator(0, "noise"))
        tensor([True])
    """
    return torch.Generator().manual_seed(derive_seed(seed, purpose))


def derive_seed(seed: int, purpose: str) -> int:
    """Return a 63-bit seed for one purpose, hashed so that neighbouring seeds and purposes are unrelated."""
    digest = hashlib.sha256(f"{purpose}:{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


DIGIT_SIDE = 32
_MAX_PIXEL = 16.0  # largest pixel value in scikit-learn's data


@dataclass(frozen=True, eq=False)
class DigitSplit:
    """Training data of the source, and target data in the order of the stream."""

    source: Domain
    target: Domain


def uci_digits() -> Domain:
    """Return the 1,797 handwritten digits of UCI, resized bilinearly from 8×8 to 32×32 pixels.

    Example:
        >>> digits = uci_digits()
        >>> digits.inputs.shape, int(digits.targets.max())
        (torch.Size([1797, 1, 32, 32]), 9)
    """
    bunch = load_digits()
    small = torch.from_numpy(bunch.images).float().unsqueeze(1) / _MAX_PIXEL
    images = F.interpolate(small, size=(DIGIT_SIDE, DIGIT_SIDE), mode="bilinear", align_corners=False)
    return Domain(images, torch.from_numpy(bunch.target).float())


def split_digits(digits: Domain, seed: int, *, source: int, target: int | None = None) -> DigitSplit:
    """Draw ``source`` digits at random, and ``target`` of the others (by default all of them).

    Example:
        >>> parts = split_digits(uci_digits(), seed=0, source=900)
        >>> len(parts.source), len(parts.target)
        (900, 897)
    """
    end = len(digits) if target is None else source + target
    if not 0 < source < end <= len(digits):
        raise OptionError(
            f"Expected positive source and target counts, sum of at most {len(digits)}, found {source} and {target}."
        )
    order = torch.randperm(len(digits), generator=make_generator(seed, "split"))
    return DigitSplit(digits.take(order[:source]), digits.take(order[source:end]))


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
