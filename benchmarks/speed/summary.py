"""Summary tables of a record for docs/speed.md, which ``make docs`` writes."""

from collections.abc import Callable
from dataclasses import replace

from benchmarks.speed.cases.floor import FLOOR
from benchmarks.speed.cases.step import DEFAULTS, STRAIGHTFORWARD, STRICT, regtta_row
from benchmarks.speed.findings import Row, Table
from benchmarks.speed.formatting import format_spread, number, table
from benchmarks.speed.record import Record
from benchmarks.speed.rendering import facts_table, made_with, scores_table, shares_table
from regtta.execution import FAST, PLAIN

REFERENCES = (DEFAULTS, STRAIGHTFORWARD)  # on a GPU, and on a CPU
PLAIN_ROW = regtta_row(PLAIN)
FAST_ROWS = (regtta_row(FAST), regtta_row(replace(FAST, channels_last=False)))


def steps(record: Record) -> str:
    """Summarise the speed-up and samples per second of regtta's step, one row per model."""
    heads = [
        "one step",
        "regtta as it is",
        "`FAST`",
        "`FAST`, over float32 throughout",
        "samples a second, straightforward",
        "samples a second, `FAST`",
        "peak memory, straightforward",
        "peak memory, `FAST`",
    ]
    rows = [_step(found) for found in _tables(record, "step/")]
    return table(heads, rows) if rows else ""


def serving(record: Record) -> str:
    """Summarise predictions and gated steps relative to a bare forward pass, one row per model and execution."""
    rows = []
    for found in _tables(record, "serving/"):
        forward, *others = found.rows
        rows.append([found.title, *(format_spread(row.ratios.get(forward.name)) for row in others)])
        heads = ["", *(row.name for row in others)]
    return table(heads, rows) if rows else ""


def collecting(record: Record) -> str:
    """Summarise the cost of collecting relative to inference, one row per model."""
    rows = []
    for found in _tables(record, "collect/"):
        reference, collect, *parts = found.rows
        seconds = "" if collect.milliseconds is None else number(collect.milliseconds.median / 1000)
        shares = [format_spread(row.ratios.get(reference.name)) for row in (collect, *parts)]
        rows.append([found.title.removeprefix("Collecting: "), *shares, seconds])
        heads = ["", "collect over inference alone", *(row.name for row in parts), "seconds"]
    return table(heads, rows) if rows else ""


def where_the_time_goes(record: Record) -> str:
    """Summarise the shares by kind of work, one table per model."""
    return "\n\n".join(shares_table(found.shares) for found in record.findings.values() if found.shares)


def floor(record: Record) -> str:
    """Summarise the lower bounds, and the measured steps relative to them."""
    parts = []
    for name, found in record.findings.items():
        if not name.startswith("floor/"):
            continue
        least = next((fact.value for fact in found.facts if fact.name == FLOOR), None)
        measured = record.findings.get(name.replace("floor/", "step/"))
        above = [] if least is None or measured is None else _above(measured.tables[0], least)
        parts.append(f"**{found.title.removeprefix('The floor: ')}**\n\n" + facts_table(found.facts, above))
    return "\n\n".join(parts)


def precision(record: Record) -> str:
    """Summarise R² and speed in each precision, one table per setting."""
    return "\n\n".join(
        f"**{found.scores[0].setting}**\n\n{scores_table(found.scores, record)}"
        for found in record.findings.values()
        if found.scores
    )


SECTIONS: dict[str, Callable[[Record], str]] = {
    "What a step costs": steps,
    "What being ready to adapt costs": serving,
    "What collecting costs": collecting,
    "Where the time goes": where_the_time_goes,
    "What the floor is": floor,
    "What precision changes": precision,
}


def device_of(record: Record) -> str:
    """Describe the device and the versions of the measurement."""
    return f"{record.made_with['device']} with {made_with(record)}"


def _tables(record: Record, beginning: str) -> list[Table]:
    return [table for name, found in record.findings.items() if name.startswith(beginning) for table in found.tables]


def _step(found: Table) -> list[str]:
    rows = {row.name: row for row in found.rows}
    reference = next((rows[name] for name in REFERENCES if name in rows), None)
    fast = next((rows[name] for name in FAST_ROWS if name in rows), None)
    return [
        found.title,
        _faster(rows.get(PLAIN_ROW), reference),
        _faster(fast, reference),
        _faster(fast, rows.get(STRICT)),
        *(_per_second(row) for row in (reference, fast)),
        *(_peak(row) for row in (reference, fast)),
    ]


def _faster(row: Row | None, reference: Row | None) -> str:
    if row is None or reference is None or reference.name not in row.ratios:
        return ""
    return f"{format_spread(row.ratios[reference.name].inverse)} ×"


def _per_second(row: Row | None) -> str:
    return "" if row is None or row.per_second is None else number(row.per_second)


def _peak(row: Row | None) -> str:
    return "" if row is None or row.peak_mib is None else f"{number(row.peak_mib)} MiB"


def _above(found: Table, floor_ms: float) -> list[tuple[str, str]]:
    """Return every measured step relative to the lower bound."""
    return [
        (f"{row.name}, over the floor", f"{number(row.milliseconds.median / floor_ms)} ×")
        for row in found.rows
        if row.milliseconds is not None
    ]
