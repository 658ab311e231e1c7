"""``regtta inspect``: describe a file of source statistics, or the provenance of an exported model."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from regtta.persistence import PROVENANCE, STATE_DICT, SUFFIXES, Provenance, read_metadata, read_provenance
from regtta.statistics import SourceStatistics

VARIANCE_SHARES = (0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class Direction:
    """An eigenvalue of the source covariance, its share of the variance and the cumulative share."""

    variance: float
    share: float
    cumulative: float


@dataclass(frozen=True)
class StatisticsReport:
    """Description of source statistics.

    Attributes:
        samples: number of samples.
        head: layer whose inputs are the features.
        fingerprint: fingerprint of the model.
        dimensions: width D of the features.
        valid_dimensions: number of raw dimensions with non-zero variance.
        rank: dimension of the subspace spanned by the features.
        directions_for: number of leading directions that explain each share of the variance.
        spectrum: all D directions, in descending order of variance.
        extras: names of the statistics stored for single methods beyond the moments.
        columns: names of the input columns; empty if unknown.
        input_moments: number of columns or channels of the inputs whose mean and variance are stored.
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
    columns: tuple[str, ...]
    input_moments: int

    def to_dict(self) -> dict[str, object]:
        """Return JSON-compatible values; shares that are keys become strings."""
        shares = {str(share): count for share, count in self.directions_for.items()}
        return asdict(self) | {"directions_for": shares}


def inspect_file(path: Path) -> StatisticsReport | Provenance:
    """Describe source statistics, or return the provenance of an exported model."""
    is_exported = path.suffix in SUFFIXES and path.suffix != STATE_DICT
    if is_exported or PROVENANCE in read_metadata(path):
        return read_provenance(path)
    return inspect_statistics(path)


def inspect_statistics(path: Path) -> StatisticsReport:
    """Load source statistics and describe them."""
    source = SourceStatistics.load(path)
    return StatisticsReport(
        samples=source.count,
        head=source.head,
        fingerprint=source.fingerprint,
        dimensions=source.dimensions,
        valid_dimensions=source.valid_dimensions,
        rank=source.rank,
        directions_for={share: source.dimensions_for(share) for share in VARIANCE_SHARES},
        spectrum=_compute_spectrum(source),
        extras=tuple(sorted(source.extras)),
        columns=source.columns,
        input_moments=len(source.input_mean),
    )


def _compute_spectrum(source: SourceStatistics) -> tuple[Direction, ...]:
    total = float(source.variances.sum()) or 1.0  # avoid 0 / 0 for constant features
    shares = source.variances / total
    columns = zip(source.variances.tolist(), shares.tolist(), shares.cumsum(0).tolist(), strict=True)
    return tuple(Direction(*values) for values in columns)
