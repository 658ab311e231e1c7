"""Findings of a case: immutable dataclasses that can be converted to JSON and back."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Reading = Literal["times the time", "times as fast"]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of a sample.

    Attributes:
        median: median.
        low: lower quartile.
        high: upper quartile.
        count: size of the sample.
    """

    median: float
    low: float
    high: float
    count: int

    @property
    def inverse(self) -> "Spread":
        """Median and quartiles of the inverse values.

        Example:
            >>> Spread(2.0, 1.0, 4.0, 9).inverse
            Spread(median=0.5, low=0.25, high=1.0, count=9)
        """
        return Spread(1 / self.median, 1 / self.high, 1 / self.low, self.count)


def spread(values: Sequence[float]) -> Spread:
    """Compute the median and quartiles of ``values``.

    Example:
        >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
        Spread(median=3.0, low=2.0, high=4.0, count=5)
    """
    low, high = (values[0], values[0])
    if len(values) > 1:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(statistics.median(values), low, high, len(values))


@dataclass(frozen=True)
class Row:
    """Measurement of one variant, relative to others in the same run.

    Attributes:
        name: name of the variant.
        ratios: time relative to each reference, by the reference's name; empty if the variant failed.
        milliseconds: time of a call; ``None`` if absolute times are not meaningful.
        per_second: samples per second; ``None`` likewise.
        peak_mib: peak GPU memory beyond the memory in use before.
        note: remark for the reader, such as the reason of a failure.
    """

    name: str
    ratios: Mapping[str, Spread] = field(default_factory=dict)
    milliseconds: Spread | None = None
    per_second: float | None = None
    peak_mib: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Comparison of variants of one task.

    Attributes:
        title: task and subject.
        reading: presentation of the ratios, which are stored as ratios of times.
        rows: measurements of the variants.
    """

    title: str
    reading: Reading
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Point:
    """Point of a curve.

    Attributes:
        size: size on the horizontal axis.
        growth: cost relative to the cost at the curve's first size.
        ratio: cost relative to the reference's at the same size, if there is a reference.
    """

    size: float
    growth: Spread
    ratio: Spread | None = None


@dataclass(frozen=True)
class Curve:
    """Time or memory as a function of a size.

    Attributes:
        title: measured quantity and subject.
        along: name of the size that varies.
        of: name of the measured quantity.
        lines: points by name of the variant.
        reference: name of the line that the others are compared with; empty if there is none.
    """

    title: str
    along: str
    of: str
    lines: Mapping[str, tuple[Point, ...]]
    reference: str = ""


@dataclass(frozen=True)
class Shares:
    """Breakdown of a time by kind of work.

    Attributes:
        title: name of the profiled step.
        parts: share of each kind of work; the shares sum to 1.
        largest: name, kind and share of the largest kernels.
        busy: utilisation of the device; ``None`` if not measured.
    """

    title: str
    parts: Mapping[str, float]
    largest: tuple[tuple[str, str, float], ...]
    busy: float | None = None


@dataclass(frozen=True)
class Score:
    """Score of adaptation in one precision, over several source models.

    Attributes:
        setting: data and shift.
        precision: precision of the arithmetic.
        r_squared: offline R² of each source model; empty if a value was not finite.
        difference: difference of R² to float32's: mean and the bounds of its confidence interval; ``None`` likewise.
        moved: root mean square difference of the predictions to float32's, in standard deviations of the labels.
        case: case whose table has the speed of such steps.
        row: name of the row of that table.
    """

    setting: str
    precision: str
    r_squared: tuple[float, ...]
    difference: tuple[float, float, float] | None
    moved: float | None
    case: str = ""
    row: str = ""


@dataclass(frozen=True)
class Fact:
    """Named number with its unit."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True)
class Findings:
    """Results of one case.

    Attributes:
        title: title of the case.
        about: description of the measurement in one or two sentences.
    """

    title: str
    about: str = ""
    tables: tuple[Table, ...] = ()
    curves: tuple[Curve, ...] = ()
    shares: tuple[Shares, ...] = ()
    scores: tuple[Score, ...] = ()
    facts: tuple[Fact, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the findings as a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Findings":
        """Create findings from the result of :meth:`plain`, also with lists in place of tuples as JSON returns."""
        return cls(
            title=plain["title"],
            about=plain["about"],
            tables=tuple(_table(entry) for entry in plain["tables"]),
            curves=tuple(_curve(entry) for entry in plain["curves"]),
            shares=tuple(_shares(entry) for entry in plain["shares"]),
            scores=tuple(_score(entry) for entry in plain["scores"]),
            facts=tuple(Fact(**entry) for entry in plain["facts"]),
        )


def _spread(plain: Mapping[str, Any] | None) -> Spread | None:
    return None if plain is None else Spread(**plain)


def _table(plain: Mapping[str, Any]) -> Table:
    rows = tuple(
        Row(
            **{
                **row,
                "ratios": {name: Spread(**ratio) for name, ratio in row["ratios"].items()},
                "milliseconds": _spread(row["milliseconds"]),
            }
        )
        for row in plain["rows"]
    )
    return Table(plain["title"], plain["reading"], rows)


def _curve(plain: Mapping[str, Any]) -> Curve:
    lines = {
        name: tuple(Point(point["size"], Spread(**point["growth"]), _spread(point["ratio"])) for point in points)
        for name, points in plain["lines"].items()
    }
    return Curve(plain["title"], plain["along"], plain["of"], lines, plain["reference"])


def _shares(plain: Mapping[str, Any]) -> Shares:
    largest = tuple((name, kind, share) for name, kind, share in plain["largest"])
    return Shares(plain["title"], plain["parts"], largest, plain["busy"])


def _score(plain: Mapping[str, Any]) -> Score:
    difference = None if plain["difference"] is None else tuple(plain["difference"])
    return Score(**{**plain, "r_squared": tuple(plain["r_squared"]), "difference": difference})
