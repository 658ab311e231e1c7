"""Tables of the stress benchmark."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regtta.report.formatting import format_model_count, format_number
from regtta_bench.stress import findings as found
from regtta_bench.stress.findings import GateFindings, MeanScore, SafetyRow
from regtta_bench.stress.results import StressResult, StressResults, parse_results
from regtta_bench.stress.streams import STREAM_KINDS
from regtta_bench.stress.stress_settings import (
    COMPARED_GUARDS,
    PLAIN_GUARDS,
    SAFE_GUARDS,
    SOURCE_METHOD,
    STRESS_SETTINGS,
)
from regtta_bench.stress.stress_specs import GATE_BATCH
from regtta_bench.tables import TextCell, TextRow, TextTable, render_markdown

SUMMARY_TITLE = "Worst difference to Source"


def make_stress_tables(results: StressResults) -> tuple[TextTable, ...]:
    """Return all non-empty tables, those with acceptance criteria first."""
    tables = [
        make_summary_table(results),
        *make_gate_table(results),
        *make_small_batch_table(results),
        _safety(results),
        *_streams(results),
    ]
    return tuple(table for table in tables if table.rows)


def make_summary_table(results: StressResults) -> TextTable:
    """Return the summary of safety: the worst difference to Source by method and kind of stream under SAFE."""
    rows = found.safety_rows(results)
    kinds = tuple(kind for kind in STREAM_KINDS if any(row.kind == kind for row in rows))
    by_cell = {(row.method_name, row.kind): row for row in rows}
    lines = tuple(
        TextRow(method_name, tuple(_cell(by_cell.get((method_name, kind))) for kind in kinds))
        for method_name in dict.fromkeys(row.method_name for row in rows)
    )
    missed = sum(not row.is_met for row in rows)
    verdict = f"not met in {missed} of {len(rows)}" if missed else f"met in all {len(rows)}"
    asked = f"Asked: at least {format_number(found.MIN_SAFE_GAIN)}; {verdict}. Bold: not met."
    return TextTable(f"{SUMMARY_TITLE}, guards SAFE, {results.setting}", kinds, lines, (asked, _over(results)))


def _cell(row: SafetyRow | None) -> TextCell:
    return TextCell("") if row is None else TextCell(_gain(row.safe), bold=not row.is_met)


# --- single tables -------------------------------------------------------------------------------


def _streams(results: StressResults) -> list[TextTable]:
    sizes = found.batch_sizes(results)
    columns = ("Source", *(f"{size} {guards}" for size in sizes for guards in COMPARED_GUARDS))
    rows = found.stream_rows(results)
    note = "Columns: batch size and guards. Mean over source models and, for kinds of one shift, over shifts."
    tables = []
    for method_name in dict.fromkeys(row.method_name for row in rows):
        lines = tuple(
            TextRow(row.kind, (_mean(row.source), *map(_mean, row.means.values())))
            for row in rows
            if row.method_name == method_name
        )
        tables.append(TextTable(f"Online R² by kind of stream, {method_name}", columns, lines, (note,)))
    return tables


def _safety(results: StressResults) -> TextTable:
    lines = tuple(
        TextRow(
            f"{row.method_name}, {row.kind}",
            (
                TextCell(_gain(row.safe)),
                TextCell("met" if row.is_met else "not met", bold=not row.is_met),
                TextCell(_where(row.safe)),
                TextCell(_gain(row.plain)),
                TextCell(_where(row.plain)),
            ),
        )
        for row in found.safety_rows(results)
    )
    columns = ("SAFE", f"at least {format_number(found.MIN_SAFE_GAIN)}", "where", "plain", "where")
    return TextTable(f"{SUMMARY_TITLE} in R²", columns, lines, (_over(results),))


def make_small_batch_table(results: StressResults) -> list[TextTable]:
    """Return the table of small batch sizes; empty if there are no runs."""
    rows = found.small_batch_rows(results)
    lines = [
        TextRow(
            f"{row.method_name}, batches of {row.batch_size}",
            (
                _mean(row.r2),
                TextCell(_format_score(row.gain, signed=True)),
                TextCell("–" if math.isnan(row.kept_share) else f"{round(row.kept_share, 2) + 0.0:.0%}"),
                TextCell("" if row.is_met is None else "met" if row.is_met else "not met", bold=row.is_met is False),
            ),
        )
        for row in rows
    ]
    source = found.mean_r2(results.select(SOURCE_METHOD, "iid", PLAIN_GUARDS))
    columns = ("R²", "gain over Source", f"share of ssa's at {found.FULL_BATCH}", "asked")
    asked = (
        f"Asked: at batches of {found.SMALL_BATCH}, a loss of no more than {1 - found.MIN_KEPT_SHARE:.0%} of "
        f"ssa's gain at {found.FULL_BATCH}."
    )
    no_gain = (
        "" if any(not math.isnan(row.kept_share) for row in rows) else f" ssa at {found.FULL_BATCH} gains nothing here."
    )
    title = f"Small batches: shifted streams in any order, guards plain; Source {_mean(source).text}"
    return [TextTable(title, columns, tuple(lines), (asked + no_gain,))] if lines else []


def make_gate_table(results: StressResults) -> list[TextTable]:
    """Return the table of the gate's criteria; empty if there are no runs with the gate."""
    gate = found.gate_findings(results)
    if gate is None:
        return []
    lines = [
        TextRow(what, (TextCell(asked), TextCell(is_), TextCell(met, bold=met != "met")))
        for what, asked, is_, met in gate_rows(gate)
    ]
    worst = f"the worst of {format_model_count(gate.source_models)}"
    note = f"ssa with guards DEFAULT and Gate, batches of {GATE_BATCH}; {worst}."
    return [TextTable("The gate", ("asked", "found", "verdict"), tuple(lines), (note,))]


def gate_rows(gate: GateFindings) -> list[tuple[str, str, str, str]]:
    """Return the gate's criteria as texts: the quantity, the criterion, the value found and the verdict."""
    clean = f"clean, {gate.batches:,} batches"
    rows = [
        (
            f"{clean}: without an update",
            f"at least {found.MIN_STILL_SHARE:.0%}",
            f"{gate.still_share:.2%}",
            gate.still_share >= found.MIN_STILL_SHARE,
        ),
        (
            f"{clean}: R² less Source's",
            f"at least {format_number(found.MIN_GATE_GAIN)}",
            _format_score(gate.worst_gain, signed=True),
            gate.worst_gain >= found.MIN_GATE_GAIN,
        ),
    ]
    for part, batches in gate.opening_batches.items():
        opened = "never" if math.isinf(batches) else f"{batches:.0f}"
        rows.append(
            (
                f"{part}: batches until the first step",
                f"at most {found.MAX_OPENING_BATCHES}",
                opened,
                batches <= found.MAX_OPENING_BATCHES,
            )
        )
    return [(what, asked, is_, "met" if met else "not met") for what, asked, is_, met in rows]


def _over(results: StressResults) -> str:
    sizes = ", ".join(map(str, found.batch_sizes(results)))
    models = format_model_count(len(results.distinct("seed")))
    return f"Worst over {models}, {results.shifts} and batches of {sizes}."


def _mean(mean: MeanScore) -> TextCell:
    if not mean.runs:
        return TextCell("not run")
    if mean.diverged_runs:
        return TextCell(
            "diverged" if mean.diverged_runs == mean.runs else f"diverged {mean.diverged_runs} of {mean.runs}"
        )
    return TextCell(format_number(mean.value))


def _gain(run: StressResult | None) -> str:
    return "not run" if run is None else "diverged" if run.has_diverged else format_number(run.gain, signed=True)


def _where(run: StressResult | None) -> str:
    if run is None:
        return ""
    return ", ".join(filter(None, [run.part, f"batches of {run.batch_size}", f"model {run.seed}"]))


def _format_score(value: float, *, signed: bool = False) -> str:
    return "diverged" if not math.isfinite(value) else format_number(value, signed=signed)


CsvRows = Sequence[Sequence[object]]


def table_files(records: Iterable[Mapping[str, Any]], setting: str) -> dict[str, str]:
    """Return the contents of all tables of a setting, by file name.

    Args:
        records: records of a run store.
        setting: name of the setting.
    """
    results = parse_results(records, setting)
    files = {f"{setting}.md": _heading(results) + render_markdown(make_stress_tables(results))}
    for name, table in _tables(results).items():
        files[f"{setting}-{name}.csv"] = _as_csv(table)
    return files


def _heading(results: StressResults) -> str:
    title = STRESS_SETTINGS[results.setting].title
    made_with = f"{'; '.join(results.devices) or 'no device'} ({'; '.join(results.versions) or 'nothing run'})"
    again = f"`regtta stress {results.setting} --tables-only` makes these tables again from those lines."
    dropped = f" {results.dropped} lines of other trainings, methods or guards were left out."
    kinds = [
        f"- `{name}`: {kind.description}" for name, kind in STREAM_KINDS.items() if name in results.distinct("kind")
    ]
    return "\n".join(
        [
            f"# Streams that are not i.i.d.: {title}",
            "",
            f"Made from {len(results.runs)} runs on {made_with}, one line each in `runs.jsonl`; {again}"
            f"{dropped if results.dropped else ''}",
            "",
            *kinds,
            "",
            "",
        ]
    )


def _tables(results: StressResults) -> dict[str, CsvRows]:
    gate = found.gate_findings(results)
    return {
        "streams": [
            ("method", "kind", "batch_size", "guards", "r2", "source_r2", "runs", "diverged"),
            *(
                (
                    row.method_name,
                    row.kind,
                    size,
                    guards,
                    _plain(mean.value),
                    _plain(row.source.value),
                    mean.runs,
                    mean.diverged_runs,
                )
                for row in found.stream_rows(results)
                for (size, guards), mean in row.means.items()
            ),
        ],
        "safety": [
            ("method", "kind", "guards", "worst", "part", "batch_size", "source_model", "met"),
            *(
                (row.method_name, row.kind, guards, *_worst(run), row.is_met if guards == SAFE_GUARDS else "")
                for row in found.safety_rows(results)
                for guards, run in ((SAFE_GUARDS, row.safe), (PLAIN_GUARDS, row.plain))
            ),
        ],
        "small-batches": [
            ("method", "batch_size", "r2", "gain", "share_kept", "met"),
            *(
                (
                    row.method_name,
                    row.batch_size,
                    _plain(row.r2.value),
                    _plain(row.gain),
                    _plain(row.kept_share),
                    _verdict(row.is_met),
                )
                for row in found.small_batch_rows(results)
            ),
        ],
        "gate": [("what", "asked", "found", "verdict"), *([] if gate is None else gate_rows(gate))],
    }


def _worst(run: StressResult | None) -> tuple[object, ...]:
    if run is None:
        return ("", "", "", "")
    return ("diverged" if run.has_diverged else _plain(run.gain), run.part, run.batch_size, run.seed)


def _verdict(met: bool | None) -> bool | str:
    return "" if met is None else met


def _plain(value: float) -> float | str:
    """Round to six decimals, as further ones differ between machines; empty if not finite."""
    return round(value, 6) if math.isfinite(value) else ""


def _as_csv(table: CsvRows) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue()
