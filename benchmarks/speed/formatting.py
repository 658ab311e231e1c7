"""Formatting of numbers and tables."""

from collections.abc import Sequence

from benchmarks.speed.findings import Reading, Spread

MINUS = "−"


def number(value: float) -> str:
    """Format with three significant digits, or all of a larger whole part.

    Example:
        >>> number(1234.5), number(12.345), number(1.2345), number(0.012345), number(-0.5)
        ('1,234', '12.3', '1.23', '0.0123', '−0.500')
    """
    size = abs(value)
    if size >= 100:
        text = f"{size:,.0f}"
    elif size >= 10:
        text = f"{size:.1f}"
    elif size >= 1 or size == 0:
        text = f"{size:.2f}"
    else:
        text = f"{size:#.3g}"
    return f"{MINUS}{text}" if value < 0 else text


def format_spread(values: Spread | None) -> str:
    """Format median and quartiles; a single value without quartiles.

    Example:
        >>> format_spread(Spread(1.5, 1.4, 1.7, 9))
        '1.50 [1.40, 1.70]'
    """
    if values is None:
        return ""
    if values.count == 1:
        return number(values.median)
    return f"{number(values.median)} [{number(values.low)}, {number(values.high)}]"


def convert_ratio(values: Spread, reading: Reading) -> Spread:
    """Convert ratios of times to the reading of a table."""
    return values.inverse if reading == "times as fast" else values


def share(value: float) -> str:
    """Format in percent.

    Example:
        >>> share(0.123)
        '12.3 %'
    """
    return f"{100 * value:.1f} %"


def format_signed(value: float) -> str:
    """Format with a sign and four digits.

    Example:
        >>> format_signed(0.00123), format_signed(-0.5)
        ('+0.0012', '−0.5000')
    """
    return f"{value:+.4f}".replace("-", MINUS)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table, without empty columns.

    Example:
        >>> print(table(["", "a", "b"], [["x", "1", ""], ["y", "2", ""]]))
        | | a |
        |---|---:|
        | x | 1 |
        | y | 2 |
    """
    kept = [place for place in range(len(heads)) if place == 0 or any(row[place] for row in rows)]
    lines = [[heads[place] for place in kept], *([row[place].replace("|", "\\|") for place in kept] for row in rows)]
    drawn = ["| " + " | ".join(line) + " |" for line in lines]
    drawn[0] = drawn[0].replace("|  |", "| |", 1)
    return "\n".join([drawn[0], "|---" + "|---:" * (len(kept) - 1) + "|", *drawn[1:]])
