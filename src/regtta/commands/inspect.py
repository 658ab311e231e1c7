"""``regtta inspect``: what a file of source statistics says, or where an exported model comes from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from regtta.exporting import PROVENANCE, STATE_DICT, SUFFIXES, Provenance, read_provenance
from regtta.files import read_metadata
from regtta.statistics import SourceStatistics

SHARES = (0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class Direction:
    """One eigenvalue of the source's covariance, its share of the variance, and the share up to it."""

    variance: float
    share: float
    cumulative: float


@dataclass(frozen=True)
class StatisticsReport:
    """What a file of source statistics says.

    Attributes:
        samples: collected over so many.
        head: whose inputs the features are.
        fingerprint: of the model.
        dimensions: D, the width of the features.
        valid_dimensions: raw dimensions that vary at all.
        rank: dimensions of the subspace they span.
        directions_for: how many leading directions carry a share of the variance.
        spectrum: all D directions, falling.
        extras: what single methods keep beyond the moments.
    """

    samples: int
    head: str
    fingerprint: str
    dimensions: int
    valid_dimensions: int
    rank: int
    directions_for: Mapping[float, int]
    spectrum: tuple[Direction, ...]
    extras: tuple[str, ...]

    def plain(self) -> dict[str, object]:
        """As JSON has it: shares are texts where they are keys."""
        shares = {str(share): count for share, count in self.directions_for.items()}
        return asdict(self) | {"directions_for": shares}


def inspect_file(path: Path) -> StatisticsReport | Provenance:
    """Read a file, whichever of regtta's it is."""
    traced = path.suffix in SUFFIXES and path.suffix != STATE_DICT
    if traced or PROVENANCE in read_metadata(path):
        return read_provenance(path)
    return inspect_statistics(path)


def inspect_statistics(path: Path) -> StatisticsReport:
    """Read the file and describe it."""
    source = SourceStatistics.load(path)
    return StatisticsReport(
        samples=source.count,
        head=source.head,
        fingerprint=source.fingerprint,
        dimensions=source.dimensions,
        valid_dimensions=source.valid_dimensions,
        rank=source.rank,
        directions_for={share: source.dimensions_for(share) for share in SHARES},
        spectrum=_spectrum(source),
        extras=tuple(sorted(source.extras)),
    )


def _spectrum(source: SourceStatistics) -> tuple[Direction, ...]:
    total = float(source.variances.sum()) or 1.0  # features that never vary have shares of nothing
    shares = source.variances / total
    columns = zip(source.variances.tolist(), shares.tolist(), shares.cumsum(0).tolist(), strict=True)
    return tuple(Direction(*values) for values in columns)
