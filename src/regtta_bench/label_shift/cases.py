"""Cases of the label-shift study: mixes of labels with and without input shifts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta_bench.demo.demo_data import make_generator
from regtta_bench.label_shift.label_shift_testbeds import InputShift, LabelShiftTestbed

TILTS = (0.1, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5)
_SPREADS = {"narrower": 0.5, "wider": -0.3}
_BISECTIONS = 80
_MAX_SLOPE = 60.0


def tilted_weights(labels: Tensor, mean: float) -> Tensor:
    """Return weights ``(N,) ∝ exp(θ y)`` with mean label ``mean``: the closest to uniform in KL divergence.

    Example:
        >>> labels = torch.linspace(-2, 2, 401, dtype=torch.float64)
        >>> round(float(tilted_weights(labels, 0.5) @ labels), 6)
        0.5
    """
    low, high = -_MAX_SLOPE, _MAX_SLOPE
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        weights = torch.softmax(middle * labels, dim=0)
        low, high = (middle, high) if float(weights @ labels) < mean else (low, middle)
    return weights


def label_mixes(labels: Tensor) -> Mapping[str, Tensor]:
    """Return normalised weights ``(N,)`` by name: tilts of the mean, parts of the range, changes of the spread.

    Args:
        labels: ``(N,)`` labels standardised by the source.
    """
    made = {}
    for size in TILTS:
        for sign in (-1, 1):
            if float(labels.min()) < sign * size < float(labels.max()):
                made[f"mean {sign * size:+g} sd"] = tilted_weights(labels, sign * size)
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


def one_class_weights(labels: Tensor, value: float) -> Tensor:
    """Return weights ``(N,)`` that are uniform over the samples with label ``value`` and zero elsewhere."""
    chosen = (labels == value).double()
    return chosen / chosen.sum()


CASE_KINDS = ("none", "covariate", "label", "mixed")
SAMPLE_COUNTS = (64, 256, 1024)
UNSHIFTED_DRAWS = 10  # draws without any shift per sample size
_CLASSES = (0, 3, 7, 9)


@dataclass(frozen=True, eq=False)
class Case:
    """One constructed target sample.

    Attributes:
        kind: one of ``CASE_KINDS``.
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
        return torch.multinomial(self.weights, self.count, replacement=True, generator=make_generator(seed, purpose))


def make_cases(testbed: LabelShiftTestbed, counts: tuple[int, ...] = SAMPLE_COUNTS) -> Iterator[Case]:
    """Yield all cases of a source model, grouped by input shift."""
    labels = testbed.standardised(testbed.held_out)
    own = torch.full_like(labels, 1 / len(labels))
    mixed = dict(label_mixes(labels))
    if testbed.classes:
        values = testbed.held_out.targets[:, 0]
        mixed |= {f"class {value} alone": one_class_weights(values, value) for value in _CLASSES}
    for count in counts:
        for draw in range(UNSHIFTED_DRAWS):
            yield Case("none", None, "", own, count, draw)
        for mix, weights in mixed.items():
            yield Case("label", None, mix, weights, count)
    names = list(mixed)
    for place, shift in enumerate(testbed.shifts):
        for turn, count in enumerate(counts):
            yield Case("covariate", shift, "", own, count)
            # All pairs would be too many: each input shift is combined with different mixes in each source model.
            mix = names[(7 * place + 3 * turn + 5 * testbed.seed) % len(names)]
            yield Case("mixed", shift, mix, mixed[mix], count)
