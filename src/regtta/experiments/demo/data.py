"""The digits, and their random split into source and target."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own alias
from sklearn.datasets import load_digits

from regtta.errors import OptionError
from regtta.experiments.datasets.domains import Domain
from regtta.experiments.demo.seeds import generator

SIZE = 32
_INK = 16.0  # largest pixel value in scikit-learn's data


@dataclass(frozen=True, eq=False)
class Split:
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
    small = torch.from_numpy(bunch.images).float().unsqueeze(1) / _INK
    images = F.interpolate(small, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    return Domain(images, torch.from_numpy(bunch.target).float())


def split(digits: Domain, seed: int, *, source: int, target: int | None = None) -> Split:
    """Draw ``source`` digits at random, and ``target`` of the others (by default all of them).

    Example:
        >>> parts = split(uci_digits(), seed=0, source=900)
        >>> len(parts.source), len(parts.target)
        (900, 897)
    """
    end = len(digits) if target is None else source + target
    if not 0 < source < end <= len(digits):
        raise OptionError(
            f"Expected positive source and target counts, sum of at most {len(digits)}, found {source} and {target}."
        )
    order = torch.randperm(len(digits), generator=generator(seed, "split"))
    return Split(digits.take(order[:source]), digits.take(order[source:end]))
