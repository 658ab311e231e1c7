"""Constructed shifts: combinations of input shift, label mix and sample size."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.experiments.demo.seeds import generator
from regtta.experiments.label_shift.benches import Bench
from regtta.experiments.label_shift.input_shifts import InputShift
from regtta.experiments.label_shift.label_mixes import mixes, one_class

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
