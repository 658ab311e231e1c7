"""Markdown page of a record, rendered from ``speed.json`` alone, so that tests can compare it byte for byte."""

from collections.abc import Sequence

from benchmarks.speed.figures import CURVES, PROFILES, VARIANTS, figures_of
from benchmarks.speed.findings import Curve, Fact, Row, Score, Shares, Table
from benchmarks.speed.formatting import convert_ratio, format_signed, format_spread, number, share, table
from benchmarks.speed.record import Record

READING = """\
Numbers are medians with quartiles in brackets, over samples in which everything that is compared takes turns;
ratios are of times of the same round. "Times as fast" is better when larger, "times the time" when smaller.
Absolute times are given for GPUs alone: they are nobody else's."""
QUICK = "**A smoke run: these numbers mean nothing.**"
CAPTIONS = {
    VARIANTS: "the step in every way",
    CURVES: "how cost grows",
    PROFILES: "where the time goes",
}


def page(record: Record) -> str:
    """Render the whole page."""
    about = record.made_with
    parts = [f"# Speed on {'a CPU' if about['device'] == 'cpu' else about['device']}"]
    parts += [QUICK] if about["quick"] else []
    parts += [f"Made by `python -m benchmarks.speed` with {made_with(record)}.", READING]
    parts += [f"![{CAPTIONS[name]}]({name})" for name in figures_of(record)]
    return "\n\n".join([*parts, *(section(name, record) for name in record.findings)]) + "\n"


def made_with(record: Record) -> str:
    """Format versions and device in one line."""
    about = record.made_with
    names = {"python": "Python", "cuda": "CUDA", "cudnn": "cuDNN"}
    found = [
        f"{names.get(key, key)} {about[key]}" for key in ("regtta", "torch", "python", "cuda", "cudnn") if key in about
    ]
    return ", ".join(found) + (
        f"; {about['processor']}, {about['cores']} cores, torch threads: {about['threads']}" if "cores" in about else ""
    )


def section(name: str, record: Record) -> str:
    """Render the findings of one case."""
    found = record.findings[name]
    parts = [f"## {found.title}", found.about]
    parts += [_table(entry, several=len(found.tables) > 1) for entry in found.tables]
    parts += [_curve(entry) for entry in found.curves]
    parts += [_shares(found.shares)] if found.shares else []
    parts += [scores_table(found.scores, record)] if found.scores else []
    parts += [facts_table(found.facts)] if found.facts else []
    return "\n\n".join(filter(None, parts))


def _table(found: Table, *, several: bool) -> str:
    references = list(dict.fromkeys(name for row in found.rows for name in row.ratios))
    of = "as" if found.reading == "times as fast" else "of"
    heads = ["", *(f"{found.reading} {of} {name}" for name in references)]
    heads += ["milliseconds", "samples a second", "peak GPU memory, MiB", "note"]
    rows = [_row(row, found, references) for row in found.rows]
    return (f"**{found.title}**\n\n" if several else "") + table(heads, rows)


def _row(row: Row, found: Table, references: list[str]) -> list[str]:
    ratios = [
        format_spread(convert_ratio(row.ratios[name], found.reading)) if name in row.ratios and name != row.name else ""
        for name in references
    ]
    return [
        row.name,
        *ratios,
        format_spread(row.milliseconds),
        "" if row.per_second is None else number(row.per_second),
        "" if row.peak_mib is None else number(row.peak_mib),
        row.note,
    ]


def _curve(found: Curve) -> str:
    sizes = sorted({point.size for points in found.lines.values() for point in points})
    places = {name: {point.size: point for point in points} for name, points in found.lines.items()}
    heads = [found.along, *(f"growth, {name}" for name in places)]
    heads += [f"{name} over {found.reference}" for name in places]
    rows = []
    for size in sizes:
        points = [at.get(size) for at in places.values()]
        growth = [format_spread(point.growth) if point else "" for point in points]
        ratios = [format_spread(point.ratio) if point else "" for point in points]
        rows.append([f"{size:,.0f}", *growth, *ratios])
    return table(heads, rows)


def shares_table(found: tuple[Shares, ...]) -> str:
    """Render the shares of the kinds of work, one column per step."""
    kinds = list(dict.fromkeys(kind for entry in found for kind in entry.parts))
    rows = [[kind, *(share(entry.parts[kind]) if kind in entry.parts else "" for entry in found)] for kind in kinds]
    if any(entry.busy is not None for entry in found):
        rows += [["device at work", *("" if entry.busy is None else share(entry.busy) for entry in found)]]
    return table(["", *(entry.title for entry in found)], rows)


def _shares(found: tuple[Shares, ...]) -> str:
    largest = [
        f"The largest of {entry.title}:\n\n"
        + table(["", "kind", "share"], [[f"`{name}`", kind, share(part)] for name, kind, part in entry.largest[:6]])
        for entry in found
    ]
    return "\n\n".join([shares_table(found), *largest])


def scores_table(found: tuple[Score, ...], record: Record) -> str:
    """Render the scores in each precision, with the speed of such steps if ``record`` has it."""
    heads = ["", "R²", "R² less float32's", "predictions moved by", "times as fast as the straightforward step"]
    rows = []
    for entry in found:
        if entry.difference is None or entry.moved is None:
            rows.append([entry.precision, "not finite", "", "", ""])
            continue
        mean, low, high = (format_signed(value) for value in entry.difference)
        average = sum(entry.r_squared) / len(entry.r_squared)
        rows.append(
            [
                entry.precision,
                f"{average:.4f}".replace("-", "−"),
                f"{mean} [{low}, {high}]",
                f"{number(entry.moved)} σ",
                _speed(entry, record),
            ]
        )
    return f"Means over {len(found[0].r_squared)} source models; σ is the labels' standard deviation.\n\n" + table(
        heads, rows
    )


def _speed(entry: Score, record: Record) -> str:
    """Format the speed-up of such steps over the first reference of their table, if measured."""
    rows = (
        [row for found in record.findings[entry.case].tables for row in found.rows]
        if entry.case in record.findings
        else []
    )
    ratios = next((row.ratios for row in rows if row.name == entry.row), {})
    return format_spread(next(iter(ratios.values())).inverse) if ratios else ""


def facts_table(found: Sequence[Fact], further: Sequence[tuple[str, str]] = ()) -> str:
    """Render numbers with their units, followed by ``further`` rows."""
    rows = [(fact.name, f"{number(fact.value)} {fact.unit}".strip()) for fact in found]
    return table(["", "value"], [*rows, *further])
