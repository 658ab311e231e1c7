"""How a stream is drawn: pure functions of the domains, a length and a generator.

A stream says of each of its samples which domain it is from and which row of it that is, so that a long one costs no
memory. No sample comes twice but in :func:`redrawn`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.experiments.datasets import Domain
from regtta.options import check_choice, check_count

BLOCK = 64  # samples before an alternating stream changes sides
BURST = 48  # mean length of a burst


@dataclass(frozen=True, eq=False)
class Pool:
    """The domains that streams are drawn from.

    Attributes:
        clean: held out of the source, and not shifted.
        shifted: by name.
        paired: whether row i is the same thing in every domain, so that a stream may have it once in all.
    """

    clean: Domain
    shifted: Mapping[str, Domain]
    paired: bool = False

    def domains(self, which: "Which", part: str) -> tuple[Domain, ...]:
        """Those that a kind of stream takes: the clean one first, unless it takes shifted samples alone."""
        if which == "all":
            return (self.clean, *self.shifted.values())
        if which == "clean":
            return (self.clean,)
        check_choice("the part", part, self.shifted.keys())
        return (self.shifted[part],) if which == "shifted" else (self.clean, self.shifted[part])


@dataclass(frozen=True, eq=False)
class Stream:
    """Samples in order.

    Attributes:
        domains: where they are from.
        origins: (N,) the number of each sample's domain.
        rows: (N,) its row there.
    """

    domains: tuple[Domain, ...]
    origins: Tensor
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def targets(self) -> Tensor:
        """(N,) or (N, O) the labels, which travel with the samples."""
        return self.gathered([domain.targets for domain in self.domains])

    def batches(self, size: int) -> Iterator[Tensor]:
        """The inputs, ``size`` samples at a time, the last batch perhaps smaller."""
        for begin in range(0, len(self), size):
            part = Stream(self.domains, self.origins[begin : begin + size], self.rows[begin : begin + size])
            yield part.gathered([domain.inputs for domain in self.domains])

    def gathered(self, values: list[Tensor]) -> Tensor:
        """What each sample has in ``values``, which have a row for each row of the domains."""
        if len(values) == 1:
            return values[0][self.rows.to(values[0].device)]
        found = values[0].new_empty((len(self), *values[0].shape[1:]))
        for number, rows_of_domain in enumerate(values):
            here = self.origins == number
            found[here.to(found.device)] = rows_of_domain[self.rows[here].to(found.device)]
        return found

    def in_order(self, order: Tensor) -> "Stream":
        """The same samples, the one at ``order[0]`` first."""
        return Stream(self.domains, self.origins[order], self.rows[order])


Which = Literal["shifted", "clean", "both", "all"]
Draw = Callable[[tuple[Domain, ...], bool, int, torch.Generator], Stream]


@dataclass(frozen=True)
class Kind:
    """One kind of stream.

    Attributes:
        which: the domains that it takes.
        meaning: what it is, for people.
        draw: draws one out of those domains.
    """

    which: Which
    meaning: str
    draw: Draw

    @property
    def of_one_part(self) -> bool:
        """Whether it is drawn anew for each shift; else there is one for all of them."""
        return self.which in ("shifted", "both")


# --- the kinds -----------------------------------------------------------------------------------


def shuffled(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Samples of one domain in any order."""
    return _drawn(domains, torch.zeros(length, dtype=torch.long), paired, generator)


def sorted_by_label(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Samples of one domain, those of the smallest labels first."""
    stream = shuffled(domains, paired, length, generator)
    return stream.in_order(_labels(stream).argsort(stable=True))


def bursts(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Sorted by label, cut into runs of 1 to 95 samples, and the runs shuffled."""
    stream = sorted_by_label(domains, paired, length, generator)
    sizes: list[int] = []
    while sum(sizes) < length:
        drawn = int(torch.randint(1, 2 * BURST, (1,), generator=generator))
        sizes.append(min(drawn, length - sum(sizes)))
    runs = torch.split(torch.arange(length), sizes)
    order = torch.randperm(len(runs), generator=generator)
    return stream.in_order(torch.cat([runs[number] for number in order.tolist()]))


def gradual(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Sample i of n is shifted with probability i/n."""
    share = torch.arange(length) / length
    origins = (torch.rand(length, generator=generator) < share).long()
    return _drawn(domains, origins, paired, generator)


def back(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """A third clean, a third shifted, a third clean."""
    third = torch.arange(length) * 3 // length
    return _drawn(domains, (third == 1).long(), paired, generator)


def mixed(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Each sample from any of the domains."""
    origins = torch.randint(len(domains), (length,), generator=generator)
    return _drawn(domains, origins, paired, generator)


def alternating(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Blocks of 64 samples, clean and shifted in turn."""
    return _drawn(domains, torch.arange(length) // BLOCK % 2, paired, generator)


def redrawn(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:  # noqa: ARG001
    """Samples of one domain with replacement, as many as asked."""
    rows = torch.randint(len(domains[0]), (length,), generator=generator)
    return Stream(domains, torch.zeros(length, dtype=torch.long), rows)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "iid": Kind("shifted", "shifted, in any order", shuffled),
        "sorted": Kind("shifted", "shifted, sorted by label", sorted_by_label),
        "bursts": Kind("shifted", "shifted, in bursts of similar labels", bursts),
        "gradual": Kind("both", "sample i of n is shifted with probability i/n", gradual),
        "back": Kind("both", "a third clean, a third shifted, a third clean", back),
        "mixed": Kind("all", "each sample clean or of any of the shifts", mixed),
        "alternating": Kind("both", "blocks of 64, clean and shifted in turn", alternating),
        "unshifted": Kind("clean", "clean, in any order", shuffled),
        "unshifted_sorted": Kind("clean", "clean, sorted by label", sorted_by_label),
    }
)
REDRAWN = "redrawn"
_DRAWABLE: Mapping[str, Kind] = MappingProxyType({**KINDS, REDRAWN: Kind("clean", "clean, redrawn", redrawn)})


def draw(kind: str, pool: Pool, part: str, length: int, generator: torch.Generator) -> Stream:
    """A stream of one kind.

    Args:
        kind: one of ``KINDS``, or ``"redrawn"``.
        pool: what there is to draw.
        part: name of the shift, for kinds of one part.
        length: samples at most; fewer where a domain that the stream takes has fewer. 0 for as many as there are.
        generator: of all that is random about it.

    Example:
        >>> clean, dark = (Domain(torch.full((9, 1), value), torch.arange(9.0)) for value in (1.0, 0.2))
        >>> stream = draw("back", Pool(clean, {"dark": dark}, paired=True), "dark", 0, torch.Generator())
        >>> stream.origins.tolist(), sorted(stream.targets.tolist())[:3]
        ([0, 0, 0, 1, 1, 1, 0, 0, 0], [0.0, 1.0, 2.0])
    """
    check_choice("the kind of stream", kind, _DRAWABLE.keys())
    about = _DRAWABLE[kind]
    domains = pool.domains(about.which, part)
    if kind == REDRAWN:
        check_count("the length", length)
        return about.draw(domains, pool.paired, length, generator)
    there = min(map(len, domains))
    if there == 0:
        raise OptionError("Expected domains with samples in them, found an empty one.")
    return about.draw(domains, pool.paired, min(length or there, there), generator)


def _drawn(domains: tuple[Domain, ...], origins: Tensor, paired: bool, generator: torch.Generator) -> Stream:
    """Samples of the domains that ``origins`` (N,) names, without replacement."""
    if paired:
        return Stream(domains, origins, torch.randperm(len(domains[0]), generator=generator)[: len(origins)])
    rows = torch.empty_like(origins)
    for number, domain in enumerate(domains):
        here = origins == number
        rows[here] = torch.randperm(len(domain), generator=generator)[: int(here.sum())]
    return Stream(domains, origins, rows)


def _labels(stream: Stream) -> Tensor:
    """(N,) one number a sample: its label, or the mean of several."""
    targets = stream.targets.cpu()
    return targets if targets.ndim == 1 else targets.mean(dim=1)
