"""Kinds of streams, drawn by pure functions of the domains, a length and a generator.

A stream stores the domain and row of each sample, so that a long one needs little memory. Only
:func:`draw_with_replacement` samples with replacement.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.options import check_choice, check_positive_int
from regtta_bench.data import Domain

BLOCK = 64  # samples per block of an alternating stream
BURST = 48  # mean length of a burst


@dataclass(frozen=True, eq=False)
class DomainPool:
    """The domains that streams are drawn from.

    Attributes:
        clean: held-out source samples without a shift.
        shifted: shifted domains by name.
        paired: True if row i shows the same object in every domain, so that a stream draws each row at most once.
    """

    clean: Domain
    shifted: Mapping[str, Domain]
    paired: bool = False

    def domains(self, which: "DomainChoice", part: str) -> tuple[Domain, ...]:
        """Return the domains that a kind of stream draws from, the clean one first if it is among them."""
        if which == "all":
            return (self.clean, *self.shifted.values())
        if which == "clean":
            return (self.clean,)
        check_choice("the part", part, self.shifted.keys())
        return (self.shifted[part],) if which == "shifted" else (self.clean, self.shifted[part])


@dataclass(frozen=True, eq=False)
class Stream:
    """Ordered samples of one or more domains.

    Attributes:
        domains: the domains that samples are drawn from.
        origins: index ``(N,)`` of each sample's domain.
        rows: row ``(N,)`` of each sample in its domain.
    """

    domains: tuple[Domain, ...]
    origins: Tensor
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def targets(self) -> Tensor:
        """Labels ``(N,)`` or ``(N, O)`` of the samples."""
        return self.gather([domain.targets for domain in self.domains])

    def batches(self, size: int) -> Iterator[Tensor]:
        """Yield batches of ``size`` inputs; the last one may be smaller."""
        for begin in range(0, len(self), size):
            part = Stream(self.domains, self.origins[begin : begin + size], self.rows[begin : begin + size])
            yield part.gather([domain.inputs for domain in self.domains])

    def gather(self, values: list[Tensor]) -> Tensor:
        """Gather each sample's row from ``values``, one tensor per domain; the result has shape ``(N, ...)``."""
        if len(values) == 1:
            return values[0][self.rows.to(values[0].device)]
        found = values[0].new_empty((len(self), *values[0].shape[1:]))
        for number, rows_of_domain in enumerate(values):
            here = self.origins == number
            found[here.to(found.device)] = rows_of_domain[self.rows[here].to(found.device)]
        return found

    def reorder(self, order: Tensor) -> "Stream":
        """Return the stream reordered by the indices ``order``."""
        return Stream(self.domains, self.origins[order], self.rows[order])


DomainChoice = Literal["shifted", "clean", "both", "all"]
DrawFunction = Callable[[tuple[Domain, ...], bool, int, torch.Generator], Stream]


@dataclass(frozen=True)
class StreamKind:
    """A kind of stream.

    Attributes:
        which: the domains that it draws from.
        description: human-readable description.
        draw: function that draws a stream from these domains.
    """

    which: DomainChoice
    description: str
    draw: DrawFunction

    @property
    def is_per_shift(self) -> bool:
        """True if there is a stream per shift; else there is a single one."""
        return self.which in ("shifted", "both")


# --- the kinds -----------------------------------------------------------------------------------


def draw_shuffled(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Draw samples of one domain in random order."""
    return _draw_rows(domains, torch.zeros(length, dtype=torch.long), paired, generator)


def draw_sorted(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Draw samples of one domain, sorted by label in ascending order."""
    stream = draw_shuffled(domains, paired, length, generator)
    return stream.reorder(_labels(stream).argsort(stable=True))


def draw_bursts(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Draw samples of one domain, sorted by label and cut into segments of 1 to 95 samples, which are shuffled."""
    stream = draw_sorted(domains, paired, length, generator)
    sizes: list[int] = []
    while sum(sizes) < length:
        drawn = int(torch.randint(1, 2 * BURST, (1,), generator=generator))
        sizes.append(min(drawn, length - sum(sizes)))
    runs = torch.split(torch.arange(length), sizes)
    order = torch.randperm(len(runs), generator=generator)
    return stream.reorder(torch.cat([runs[number] for number in order.tolist()]))


def draw_gradual(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Draw a gradual shift: sample i of n is shifted with probability i/n."""
    share = torch.arange(length) / length
    origins = (torch.rand(length, generator=generator) < share).long()
    return _draw_rows(domains, origins, paired, generator)


def draw_returning(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Draw a shift that ends: one third clean, one third shifted, one third clean."""
    third = torch.arange(length) * 3 // length
    return _draw_rows(domains, (third == 1).long(), paired, generator)


def draw_mixed(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Draw each sample from a random domain."""
    origins = torch.randint(len(domains), (length,), generator=generator)
    return _draw_rows(domains, origins, paired, generator)


def draw_alternating(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:
    """Draw blocks of 64 samples, alternately clean and shifted."""
    return _draw_rows(domains, torch.arange(length) // BLOCK % 2, paired, generator)


def draw_with_replacement(domains: tuple[Domain, ...], paired: bool, length: int, generator: torch.Generator) -> Stream:  # noqa: ARG001
    """Draw ``length`` samples of one domain with replacement."""
    rows = torch.randint(len(domains[0]), (length,), generator=generator)
    return Stream(domains, torch.zeros(length, dtype=torch.long), rows)


STREAM_KINDS: Mapping[str, StreamKind] = MappingProxyType(
    {
        "iid": StreamKind("shifted", "shifted, in any order", draw_shuffled),
        "sorted": StreamKind("shifted", "shifted, sorted by label", draw_sorted),
        "bursts": StreamKind("shifted", "shifted, in bursts of similar labels", draw_bursts),
        "gradual": StreamKind("both", "sample i of n is shifted with probability i/n", draw_gradual),
        "back": StreamKind("both", "a third clean, a third shifted, a third clean", draw_returning),
        "mixed": StreamKind("all", "each sample clean or of any of the shifts", draw_mixed),
        "alternating": StreamKind("both", "blocks of 64, clean and shifted in turn", draw_alternating),
        "unshifted": StreamKind("clean", "clean, in any order", draw_shuffled),
        "unshifted_sorted": StreamKind("clean", "clean, sorted by label", draw_sorted),
    }
)
REDRAWN = "redrawn"
_ALL_KINDS: Mapping[str, StreamKind] = MappingProxyType(
    {**STREAM_KINDS, REDRAWN: StreamKind("clean", "clean, redrawn", draw_with_replacement)}
)


def draw_stream(kind: str, pool: DomainPool, part: str, length: int, generator: torch.Generator) -> Stream:
    """Draw a stream.

    Args:
        kind: one of ``STREAM_KINDS``, or ``"redrawn"``.
        pool: the domains to draw from.
        part: name of the shift, for kinds drawn per shift.
        length: maximum number of samples, capped by the smallest domain that the stream draws from; 0 for as many as
            that has. For ``"redrawn"``, the exact number of samples.
        generator: random generator.

    Example:
        >>> clean, dark = (Domain(torch.full((9, 1), value), torch.arange(9.0)) for value in (1.0, 0.2))
        >>> stream = draw_stream("back", DomainPool(clean, {"dark": dark}, paired=True), "dark", 0, torch.Generator())
        >>> stream.origins.tolist(), sorted(stream.targets.tolist())[:3]
        ([0, 0, 0, 1, 1, 1, 0, 0, 0], [0.0, 1.0, 2.0])
    """
    check_choice("the kind of stream", kind, _ALL_KINDS.keys())
    about = _ALL_KINDS[kind]
    domains = pool.domains(about.which, part)
    if kind == REDRAWN:
        check_positive_int("the length", length)
        return about.draw(domains, pool.paired, length, generator)
    available = min(map(len, domains))
    if available == 0:
        raise OptionError("Expected non-empty domains, found an empty one.")
    return about.draw(domains, pool.paired, min(length or available, available), generator)


def _draw_rows(domains: tuple[Domain, ...], origins: Tensor, paired: bool, generator: torch.Generator) -> Stream:
    """Draw a row for each entry of ``origins`` ``(N,)`` from the domain of that index, without replacement."""
    if paired:
        return Stream(domains, origins, torch.randperm(len(domains[0]), generator=generator)[: len(origins)])
    rows = torch.empty_like(origins)
    for number, domain in enumerate(domains):
        here = origins == number
        rows[here] = torch.randperm(len(domain), generator=generator)[: int(here.sum())]
    return Stream(domains, origins, rows)


def _labels(stream: Stream) -> Tensor:
    """Return one number ``(N,)`` per sample: its label, or the mean of several labels."""
    targets = stream.targets.cpu()
    return targets if targets.ndim == 1 else targets.mean(dim=1)
