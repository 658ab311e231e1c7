"""What a case finds: frozen, and the same again after a trip through JSON."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Reading = Literal["times the time", "times as fast"]


@dataclass(frozen=True)
class Spread:
    """The middle of many numbers.

    Attributes:
        median: half are below.
        low: a quarter is below.
        high: a quarter is above.
        count: how many there are.
    """

    median: float
    low: float
    high: float
    count: int

    @property
    def inverse(self) -> "Spread":
        """Of the inverses of the same numbers.

        Example:
            >>> Spread(2.0, 1.0, 4.0, 9).inverse
            Spread(median=0.5, low=0.25, high=1.0, count=9)
        """
        return Spread(1 / self.median, 1 / self.high, 1 / self.low, self.count)


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of ``values``.

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
    """One way of doing something, against others in the same run.

    Attributes:
        name: of the way.
        ratios: its time over that of each reference, by the reference's name; empty for one that failed.
        milliseconds: a call; ``None`` where absolute times mean nothing.
        per_second: samples; likewise.
        peak_mib: GPU memory at the most, beyond what was there before.
        note: what a reader must know, such as why it failed.
    """

    name: str
    ratios: Mapping[str, Spread] = field(default_factory=dict)
    milliseconds: Spread | None = None
    per_second: float | None = None
    peak_mib: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Ways of doing one thing.

    Attributes:
        title: what is done, and on what.
        reading: how its ratios are shown; they are kept as times over times.
        rows: the ways.
    """

    title: str
    reading: Reading
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Point:
    """One size of a curve.

    Attributes:
        size: along the curve.
        growth: time there over the time at the curve's first size.
        ratio: time there over the reference's at the same size, where there is one.
    """

    size: float
    growth: Spread
    ratio: Spread | None = None


@dataclass(frozen=True)
class Curve:
    """How a time, or a memory, grows.

    Attributes:
        title: what grows, and on what.
        along: with what.
        of: what it is that grows.
        lines: by the name of the way of doing it.
        reference: the line that the others are compared with, where there is one.
    """

    title: str
    along: str
    of: str
    lines: Mapping[str, tuple[Point, ...]]
    reference: str = ""


@dataclass(frozen=True)
class Shares:
    """Where the time of something goes.

    Attributes:
        title: of what.
        parts: share of each kind of work; they sum to 1.
        largest: the single largest kernels: name, kind and share.
        busy: share of the time in which the device worked at all; ``None`` where that was not measured.
    """

    title: str
    parts: Mapping[str, float]
    largest: tuple[tuple[str, str, float], ...]
    busy: float | None = None


@dataclass(frozen=True)
class Score:
    """What came of a stream adapted in one precision, over several source models.

    Attributes:
        setting: data and shift.
        precision: of the arithmetic.
        r_squared: offline R², one a source model; empty where something was not finite.
        difference: of R² to float32's: mean, and lower and upper end of its interval; ``None`` likewise.
        moved: root mean square of the difference of predictions to float32's, in standard deviations of the labels.
        case: whose table has the speed of such steps.
        row: of that table.
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
    """One number with its unit."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True)
class Findings:
    """All that one case found.

    Attributes:
        title: of the case.
        about: how it was measured, in a sentence or two.
    """

    title: str
    about: str = ""
    tables: tuple[Table, ...] = ()
    curves: tuple[Curve, ...] = ()
    shares: tuple[Shares, ...] = ()
    scores: tuple[Score, ...] = ()
    facts: tuple[Fact, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Findings":
        """What :meth:`plain` gave, also after JSON has turned its tuples into lists."""
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
