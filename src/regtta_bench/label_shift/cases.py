"""Cases of the label-shift study: mixes of labels with and without input shifts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta_bench.demo.demo_data import generator
from regtta_bench.label_shift.label_shift_testbeds import Bench, InputShift

TILTS = (0.1, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5)
_SPREADS = {"narrower": 0.5, "wider": -0.3}
_BISECTIONS = 80
_STEEPEST = 60.0


def tilted(labels: Tensor, mean: float) -> Tensor:
    """Return weights ``(N,) ∝ exp(θ y)`` with mean label ``mean``: the closest to uniform in KL divergence.

    Example:
        >>> labels = torch.linspace(-2, 2, 401, dtype=torch.float64)
        >>> round(float(tilted(labels, 0.5) @ labels), 6)
        0.5
    """
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        weights = torch.softmax(middle * labels, dim=0)
        low, high = (middle, high) if float(weights @ labels) < mean else (low, middle)
    return weights


def mixes(labels: Tensor) -> Mapping[str, Tensor]:
    """Return normalised weights ``(N,)`` by name: tilts of the mean, parts of the range, changes of the spread.

    Args:
        labels: ``(N,)`` labels standardised by the source.
    """
    made = {}
    for size in TILTS:
        for sign in (-1, 1):
            if float(labels.min()) < sign * size < float(labels.max()):
                made[f"mean {sign * size:+g} sd"] = tilted(labels, sign * size)
    low, middle, high = labels.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=labels.dtype))
    parts = {
        "lowest quarter": labels <= low,
        "lower half": labels <= middle,
        "lower three quarters": labels <= high,
        "upper three quarters": labels > low,
        "upper half": labels > middle,
        "highest quarter": labels > high,
        "middle half": (labels > low) & (labels <= high),
        "outer half": (labels <= low) | (labels > high),
    }
    made |= {name: part.to(labels.dtype) for name, part in parts.items()}
    made |= {name: torch.exp(-rate * (labels - labels.mean()) ** 2) for name, rate in _SPREADS.items()}
    return {name: weights / weights.sum() for name, weights in made.items()}


def one_class(labels: Tensor, value: float) -> Tensor:
    """Return weights ``(N,)`` that are uniform over the samples with label ``value`` and zero elsewhere."""
    chosen = (labels == value).double()
    return chosen / chosen.sum()


KINDS = ("none", "covariate", "label", "mixed")
COUNTS = (64, 256, 1024)
PLAIN = 10  # draws without any shift per sample size
_CLASSES = (0, 3, 7, 9)


@dataclass(frozen=True, eq=False)
class Case:
    """One constructed target sample.

    Attributes:
        kind: one of ``KINDS``.
        shift: shift of the inputs; None for none.
        mix: name of the label mix; empty for the source's own.
        weights: ``(N,)`` sampling weights of the held-out samples.
        count: number of samples to draw, with replacement.
        draw: index of the draw, among cases that are otherwise equal.
    """

    kind: str
    shift: InputShift | None
    mix: str
    weights: Tensor
    count: int
    draw: int = 0

    @property
    def inputs(self) -> str:
        """Name of the input shift; empty for none."""
        return self.shift.name if self.shift else ""

    def rows(self, seed: int) -> Tensor:
        """Draw the indices ``(count,)`` of held-out samples, for the source model of ``seed``."""
        purpose = f"label shift: {self.inputs}, {self.mix}, {self.count}, {self.draw}"
        return torch.multinomial(self.weights, self.count, replacement=True, generator=generator(seed, purpose))


def cases_of(bench: Bench, counts: tuple[int, ...] = COUNTS) -> Iterator[Case]:
    """Yield all cases of a source model, grouped by input shift."""
    labels = bench.standardised(bench.held_out)
    own = torch.full_like(labels, 1 / len(labels))
    mixed = dict(mixes(labels))
    if bench.classes:
        values = bench.held_out.targets[:, 0]
        mixed |= {f"class {value} alone": one_class(values, value) for value in _CLASSES}
    for count in counts:
        for draw in range(PLAIN):
            yield Case("none", None, "", own, count, draw)
        for mix, weights in mixed.items():
            yield Case("label", None, mix, weights, count)
    names = list(mixed)
    for place, shift in enumerate(bench.shifts):
        for turn, count in enumerate(counts):
            yield Case("covariate", shift, "", own, count)
            # All pairs would be too many: each input shift is combined with different mixes in each source model.
            mix = names[(7 * place + 3 * turn + 5 * bench.seed) % len(names)]
            yield Case("mixed", shift, mix, mixed[mix], count)
