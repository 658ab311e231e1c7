"""The constructed shifts: which inputs, which mix of labels, how many samples."""

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
PLAIN = 10  # draws without any shift, of each count
_CLASSES = (0, 3, 7, 9)


@dataclass(frozen=True, eq=False)
class Case:
    """One constructed target.

    Attributes:
        kind: of ``KINDS``.
        shift: of the inputs; None for none.
        mix: name of the mix of labels; empty for the source's own.
        weights: (N,) of the held-out samples.
        count: samples to draw, with replacement.
        draw: tells cases apart that are alike in all else.
    """

    kind: str
    shift: InputShift | None
    mix: str
    weights: Tensor
    count: int
    draw: int = 0

    @property
    def inputs(self) -> str:
        """Name of the shift of the inputs."""
        return self.shift.name if self.shift else ""

    def rows(self, seed: int) -> Tensor:
        """The held-out samples that are drawn for a source model of ``seed``."""
        purpose = f"label shift: {self.inputs}, {self.mix}, {self.count}, {self.draw}"
        return torch.multinomial(self.weights, self.count, replacement=True, generator=generator(seed, purpose))


def cases_of(bench: Bench, counts: tuple[int, ...] = COUNTS) -> Iterator[Case]:
    """Every case of a source model, those with the same inputs one after the other."""
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
            # Each shift of the inputs meets other mixes in each source model: all pairs would be too many.
            mix = names[(7 * place + 3 * turn + 5 * bench.seed) % len(names)]
            yield Case("mixed", shift, mix, mixed[mix], count)
