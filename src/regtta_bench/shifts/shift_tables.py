"""Tables of the suite: the summary of each half, and R² with gains by data set, kind of shift and half."""

import csv
import io
import math
import statistics
from collections.abc import Iterator, Sequence

from regtta.report.formatting import format_model_count
from regtta_bench.paper import PROTOCOLS
from regtta_bench.shifts.results import ShiftScore, SuiteScores
from regtta_bench.shifts.rows import ROWS_NOTE, SOURCE, SSA_PAPER
from regtta_bench.shifts.suite import DEVELOPMENT, HELD_OUT, Shift
from regtta_bench.shifts.summary import HARM, MARGIN, REFERENCES, RowSummary, summarise
from regtta_bench.tables import (
    CONFIDENCE_LEVEL,
    CSV_COLUMNS,
    Difference,
    TextCell,
    TextRow,
    TextTable,
    format_difference,
)

HALVES = (DEVELOPMENT, HELD_OUT)
_LARGE = 100.0  # scores beyond are printed with three significant digits
_SUMMARY_COLUMNS = (
    "shifts",
    "R²",
    "R² ≥ −1",
    f"gain [{CONFIDENCE_LEVEL:.0%}]",
    "gain online",
    *(f"less {reference} [{CONFIDENCE_LEVEL:.0%}]" for reference in REFERENCES),
    f"harmed by > {HARM}",
    "on a par",
    "worst shift",
)
_SUMMARY_NOTES = (
    "R²: mean over shifts, offline. All other scores and differences are of R² clipped at −1; a run that diverged "
    "counts as −1.",
    "Gain: mean difference to the source model. Intervals: bootstrap over shifts, with source models resampled within "
    "each; bold where zero is outside.",
    f"Harmed: shifts whose mean is more than {HARM} below the source model. On a par: share of shifts at most {MARGIN} "
    f"below the better of {' and '.join(REFERENCES)}.",
    "The oracle learns from the target's labels.",
    ROWS_NOTE,
)


def make_summary_tables(scores: SuiteScores, *, smoke: bool = False) -> tuple[TextTable, ...]:
    """Return one table per half that was run, with one line per row."""
    return tuple(
        TextTable(
            f"{_smoke_mark(smoke)}Summary, {half} half",
            _SUMMARY_COLUMNS,
            tuple(TextRow(each.row, _summary_cells(each)) for each in summarise(scores, half) if each.shifts),
            _SUMMARY_NOTES,
        )
        for half in HALVES
        if any(shift.half == half for shift in scores.shifts)
    )


def _summary_cells(summary: RowSummary) -> tuple[TextCell, ...]:
    worst = f"{summary.worst_gain:+.3f} {summary.worst_shift}"
    return (
        TextCell(str(summary.shifts)),
        TextCell(f"{summary.diverged} diverged" if summary.diverged else format_r2(summary.raw_mean)),
        TextCell(format_r2(summary.mean)),
        *(_difference_cell(each) for each in (summary.gain, summary.online_gain, *summary.over_references)),
        TextCell(str(summary.harmed)),
        TextCell("–" if math.isnan(summary.on_par) else f"{summary.on_par:.0%}"),
        TextCell("–" if summary.row == SOURCE else worst),
    )


def _difference_cell(difference: Difference) -> TextCell:
    return TextCell(format_difference(difference), difference.is_significant)


def make_shift_tables(scores: SuiteScores, *, smoke: bool = False) -> tuple[TextTable, ...]:
    """Return a table for each half, kind and data set: R² of each row, and its gain over the source model."""
    return tuple(
        TextTable(
            f"{_smoke_mark(smoke)}{_group_title(shifts)}",
            tuple(shift.name for shift in shifts),
            tuple(_shift_row(scores, row, shifts) for row in scores.rows if _is_run(scores, row, shifts)),
            _shift_notes(scores, shifts),
        )
        for shifts in group_shifts(scores.shifts)
    )


def group_shifts(shifts: Sequence[Shift]) -> tuple[tuple[Shift, ...], ...]:
    """Return the shifts grouped by half, kind and data set, the development half first; natural ones by modality."""
    groups: dict[tuple[str, str, str], list[Shift]] = {}
    for shift in sorted(shifts, key=lambda shift: HALVES.index(shift.half)):
        groups.setdefault((shift.half, shift.kind, _group_name(shift)), []).append(shift)
    return tuple(map(tuple, groups.values()))


def _group_name(shift: Shift) -> str:
    return shift.modality if shift.kind == "natural" else shift.data


def _group_title(shifts: Sequence[Shift]) -> str:
    half, kind, name = shifts[0].half.capitalize(), shifts[0].kind, _group_name(shifts[0])
    return f"{half} half, {kind}, {name}: offline R² and gain over the source model"


def _is_run(scores: SuiteScores, row: str, shifts: Sequence[Shift]) -> bool:
    return any(scores.score(shift.name, row) is not None for shift in shifts)


def _shift_row(scores: SuiteScores, row: str, shifts: Sequence[Shift]) -> TextRow:
    return TextRow(row, tuple(_shift_cell(scores, row, shift) for shift in shifts))


def _shift_cell(scores: SuiteScores, row: str, shift: Shift) -> TextCell:
    score = scores.score(shift.name, row)
    if score is None:
        return TextCell("")
    words = [_format_score(score)]
    if row == SOURCE:
        return TextCell(words[0])
    difference = scores.difference(shift.name, row)
    words += [format_difference(difference)] if difference.pairs else []
    return TextCell(", ".join(words), difference.is_significant)


def _format_score(score: ShiftScore) -> str:
    """Format the mean without clipping, the number of runs that diverged, and that of missing runs."""
    words = [f"diverged {score.diverged} of {score.runs}"] if score.diverged else []
    words += [] if score.diverged or not score.raw else [format_r2(score.mean)]
    words += [f"({score.missing} missing)"] if score.missing else []
    return " ".join(words)


def _shift_notes(scores: SuiteScores, shifts: Sequence[Shift]) -> tuple[str, ...]:
    models = {len(score.raw) for shift in shifts if (score := scores.score(shift.name, SOURCE)) is not None}
    count = " or ".join(format_model_count(number) for number in sorted(models)) or "no source model"
    return (
        *(f"{shift.name}: {shift.description}." for shift in shifts),
        f"Mean over {count}, {scores.seeds} adaptation seed{'s' if scores.seeds > 1 else ''} on each. "
        "Gains are of R² clipped at −1, paired over source models, percentile bootstrap; bold where zero is outside.",
    )


def _smoke_mark(smoke: bool) -> str:
    return "SMOKE RUN, not a result: " if smoke else ""


def format_r2(value: float) -> str:
    """Format R² with three decimals; with three significant digits if it is very large.

    Example:
        >>> format_r2(0.51149), format_r2(-6.4e6), format_r2(float("nan"))
        ('0.511', '-6.4e+06', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if abs(value) < _LARGE else f"{value:.3g}"


# The columns of `regtta reproduce`, so that `regtta report` reads the file, and those of the suite.
SUITE_COLUMNS = (*CSV_COLUMNS, "half", "kind", "data", "clipped_mean")


def render_scores_csv(scores: SuiteScores, *, smoke: bool = False) -> str:
    """Render one line per shift, row and protocol; differences are of R² clipped at −1."""
    text = io.StringIO()
    writer = csv.DictWriter(text, SUITE_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for group in group_shifts(scores.shifts):
        for shift in group:
            for row in scores.rows:
                writer.writerows(_csv_lines(scores, shift, row, smoke=smoke))
    return text.getvalue()


def _csv_lines(scores: SuiteScores, shift: Shift, row: str, *, smoke: bool) -> Iterator[dict[str, object]]:
    for protocol in PROTOCOLS:
        score = scores.score(shift.name, row, protocol)
        if score is None:
            continue
        several = len(score.raw) > 1 and not math.isnan(score.mean)
        line: dict[str, object] = {
            "table": f"{shift.half} {shift.kind} {_group_name(shift)} {protocol}",
            "row": row,
            "column": shift.name,
            "setting": shift.source,
            "task": "regression",
            "score": "R2",
            "protocol": protocol,
            "mean": _number_or_empty(score.mean),
            "sd": statistics.stdev(score.raw.values()) if several else "",
            "source_models": len(score.raw),
            "seeds": scores.seeds,
            "runs": score.runs,
            "diverged": score.diverged,
            "missing": score.missing,
            "best": False,
            "own_source": False,
            "smoke": smoke,
            "half": shift.half,
            "kind": shift.kind,
            "data": shift.data,
            "clipped_mean": _number_or_empty(score.clipped_mean),
        }
        for name, reference in (("less_ssa", SSA_PAPER), ("less_source", SOURCE)):
            if reference != row:
                difference = scores.difference(shift.name, row, over=reference, protocol=protocol)
                line |= _difference_fields(name, difference)
        yield line


def render_summary_csv(scores: SuiteScores, *, smoke: bool = False) -> str:
    """Render one line per row and half."""
    lines = [_summary_line(each, smoke=smoke) for half in HALVES for each in summarise(scores, half) if each.shifts]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _summary_line(summary: RowSummary, *, smoke: bool) -> dict[str, object]:
    names = ("less_ssa", "less_bn_adapt")
    return {
        "half": summary.half,
        "row": summary.row,
        "shifts": summary.shifts,
        "diverged": summary.diverged,
        "mean": _number_or_empty(summary.raw_mean),
        "clipped_mean": _number_or_empty(summary.mean),
        **_difference_fields("gain", summary.gain),
        **_difference_fields("online_gain", summary.online_gain),
        **{
            key: value
            for name, difference in zip(names, summary.over_references, strict=True)
            for key, value in _difference_fields(name, difference).items()
        },
        "harmed": summary.harmed,
        "on_par": _number_or_empty(summary.on_par),
        "worst_gain": _number_or_empty(summary.worst_gain),
        "worst_shift": summary.worst_shift,
        "smoke": smoke,
    }


def _difference_fields(name: str, difference: Difference) -> dict[str, object]:
    values = (difference.mean, difference.low, difference.high)
    return {
        f"{name}{ending}": _number_or_empty(value) for ending, value in zip(("", "_low", "_high"), values, strict=True)
    }


def _number_or_empty(value: float) -> float | str:
    return "" if math.isnan(value) else value
