"""The page of the study: how often each rule is right and what it costs, against the number of labels."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.select_study.choices import LABELS, RULES
from regtta_bench.shifts import DEVELOPMENT, HELD_OUT
from regtta_bench.tables import TextCell, TextRow, TextTable, render_markdown

_COLUMNS = ("labels", "right", "harmful", "adapts", "gain", "worst gain", "loss", "worst loss", "worst shift")
_NOTES = (
    "Right: share of choices within 0.01 R² of the best candidate on the samples that were not drawn. Harmful: share "
    "more than 0.01 R² below the unadapted model. Adapts: share of choices other than the unadapted model.",
    "Gain: R² less that of the unadapted model. Loss: R² of the best candidate less that of the choice; a corrected "
    "choice can be better than all candidates. Both are means over shifts, source models and draws; the worst gain and "
    "the worst loss are those of a single draw, and the worst shift is that of the largest mean loss.",
)


def make_page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of all runs as Markdown: a table for each half, and one with all shifts."""
    tables = []
    for half in (DEVELOPMENT, HELD_OUT):
        mine = [record for record in records if record["specification"]["half"] == half]
        if mine:
            tables += [_rules_table(half, mine), _shifts_table(half, mine)]
    heading = "# Choosing a method by a few labels\n\nWritten by `python -m benchmarks.select_study`.\n\n"
    return heading + render_markdown(tables)


def _rules_table(half: str, records: Sequence[Mapping[str, Any]]) -> TextTable:
    shifts = {record["specification"]["shift"] for record in records}
    rows = []
    for rule in RULES:
        for labels in map(str, LABELS):
            found = [
                (record["specification"]["shift"], record["result"]["rules"][rule][labels])
                for record in records
                if labels in record["result"]["rules"][rule]
            ]
            if found:
                rows.append(TextRow(rule, (TextCell(labels), *_rule_cells(found))))
    draws = sorted({record["specification"]["draws"] for record in records})
    note = f"Shifts: {len(shifts)}. Source models: {len(records)}. Draws on each: {' or '.join(map(str, draws))}."
    return TextTable(f"{half.capitalize()} half: rules", _COLUMNS, tuple(rows), (note, *_NOTES))


def _rule_cells(found: Sequence[tuple[str, Mapping[str, float]]]) -> tuple[TextCell, ...]:
    by_shift = {name: [summary for other, summary in found if other == name] for name, _ in found}

    def mean(field: str, name: str) -> float:
        return statistics.fmean(summary[field] for summary in by_shift[name])

    def over_shifts(field: str) -> float:
        return statistics.fmean(mean(field, name) for name in by_shift)

    worst = max(by_shift, key=lambda name: mean("loss", name))
    texts = (
        *(f"{over_shifts(field):.0%}" for field in ("right", "harmful", "adapts")),
        f"{over_shifts('gain'):+.3f}",
        f"{min(summary['worst_gain'] for _, summary in found):+.3f}",
        f"{over_shifts('loss'):.3f}",
        f"{max(summary['worst_loss'] for _, summary in found):.3f}",
        f"{worst} ({mean('loss', worst):.3f})",
    )
    return tuple(map(TextCell, texts))


def _shifts_table(half: str, records: Sequence[Mapping[str, Any]]) -> TextTable:
    """Return R² of every candidate by shift, and the share of right choices by number of labels."""
    shifts = list(dict.fromkeys(record["specification"]["shift"] for record in records))
    names = list(dict.fromkeys(name for record in records for name in record["result"]["r2"]))
    rows = []
    for shift in shifts:
        mine = [record["result"] for record in records if record["specification"]["shift"] == shift]
        scores = [[result["r2"][name] for result in mine if name in result["r2"]] for name in names]
        rights = [
            [r["rules"]["select"][str(n)]["right"] for r in mine if str(n) in r["rules"]["select"]] for n in LABELS
        ]
        texts = (
            *(f"{statistics.fmean(values):.3f}" if values else "–" for values in scores),
            *(f"{statistics.fmean(values):.0%}" if values else "–" for values in rights),
        )
        rows.append(TextRow(shift, tuple(map(TextCell, texts))))
    columns = (*names, *(f"right, {labels}" for labels in LABELS))
    note = (
        "R² of each candidate on the whole target, mean over source models, and the share of right choices of select."
    )
    return TextTable(f"{half.capitalize()} half: shifts", columns, tuple(rows), (note,))
