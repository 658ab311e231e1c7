"""Tables of the stress benchmark."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regtta.report.formatting import format_model_count, format_number
from regtta_bench.stress import findings as found
from regtta_bench.stress.findings import GateFindings, Mean, SafetyRow
from regtta_bench.stress.results import Result, Results, results_of
from regtta_bench.stress.streams import KINDS
from regtta_bench.stress.stress_settings import COMPARED, PLAIN, SAFELY, SETTINGS, SOURCE
from regtta_bench.stress.stress_specs import GATE_BATCH
from regtta_bench.tables import Line, Sheet, Text, as_markdown

SKETCH = "Worst difference to Source"


def sheets_of(results: Results) -> tuple[Sheet, ...]:
    """Return all non-empty tables, those with acceptance criteria first."""
    sheets = [sketch(results), *gate_sheet(results), *small_sheet(results), _safety(results), *_streams(results)]
    return tuple(sheet for sheet in sheets if sheet.lines)


def sketch(results: Results) -> Sheet:
    """Return the summary of safety: the worst difference to Source by method and kind of stream under SAFE."""
    rows = found.safety_rows(results)
    kinds = tuple(kind for kind in KINDS if any(row.kind == kind for row in rows))
    by_place = {(row.arm, row.kind): row for row in rows}
    lines = tuple(
        Line(arm, tuple(_cell(by_place.get((arm, kind))) for kind in kinds))
        for arm in dict.fromkeys(row.arm for row in rows)
    )
    missed = sum(not row.met for row in rows)
    verdict = f"not met in {missed} of {len(rows)}" if missed else f"met in all {len(rows)}"
    asked = f"Asked: at least {format_number(found.SAFE_FALL)}; {verdict}. Bold: not met."
    return Sheet(f"{SKETCH}, guards SAFE, {results.setting}", kinds, lines, (asked, _over(results)))


def _cell(row: SafetyRow | None) -> Text:
    return Text("") if row is None else Text(_gain(row.safe), bold=not row.met)


# --- single tables -------------------------------------------------------------------------------


def _streams(results: Results) -> list[Sheet]:
    sizes = found.batch_sizes(results)
    columns = ("Source", *(f"{size} {guards}" for size in sizes for guards in COMPARED))
    rows = found.stream_rows(results)
    note = "Columns: batch size and guards. Mean over source models and, for kinds of one shift, over shifts."
    sheets = []
    for arm in dict.fromkeys(row.arm for row in rows):
        lines = tuple(
            Line(row.kind, (_mean(row.source), *map(_mean, row.means.values()))) for row in rows if row.arm == arm
        )
        sheets.append(Sheet(f"Online R² by kind of stream, {arm}", columns, lines, (note,)))
    return sheets


def _safety(results: Results) -> Sheet:
    lines = tuple(
        Line(
            f"{row.arm}, {row.kind}",
            (
                Text(_gain(row.safe)),
                Text("met" if row.met else "not met", bold=not row.met),
                Text(_where(row.safe)),
                Text(_gain(row.plain)),
                Text(_where(row.plain)),
            ),
        )
        for row in found.safety_rows(results)
    )
    columns = ("SAFE", f"at least {format_number(found.SAFE_FALL)}", "where", "plain", "where")
    return Sheet(f"{SKETCH} in R²", columns, lines, (_over(results),))


def small_sheet(results: Results) -> list[Sheet]:
    """Return the table of small batch sizes; empty if there are no runs."""
    rows = found.small_rows(results)
    lines = [
        Line(
            f"{row.arm}, batches of {row.batch_size}",
            (
                _mean(row.r2),
                Text(_shown(row.gain, signed=True)),
                Text("–" if math.isnan(row.kept) else f"{round(row.kept, 2) + 0.0:.0%}"),
                Text("" if row.met is None else "met" if row.met else "not met", bold=row.met is False),
            ),
        )
        for row in rows
    ]
    source = found.mean_r2(results.of(SOURCE, "iid", PLAIN))
    columns = ("R²", "gain over Source", f"share of ssa's at {found.WHOLE_AT}", "asked")
    asked = (
        f"Asked: at batches of {found.KEPT_AT}, a loss of no more than {1 - found.KEPT:.0%} of ssa's gain at "
        f"{found.WHOLE_AT}."
    )
    lost = "" if any(not math.isnan(row.kept) for row in rows) else f" ssa at {found.WHOLE_AT} gains nothing here."
    title = f"Small batches: shifted streams in any order, guards plain; Source {_mean(source).text}"
    return [Sheet(title, columns, tuple(lines), (asked + lost,))] if lines else []


def gate_sheet(results: Results) -> list[Sheet]:
    """Return the table of the gate's criteria; empty if there are no runs with the gate."""
    gate = found.gate_findings(results)
    if gate is None:
        return []
    lines = [
        Line(what, (Text(asked), Text(is_), Text(met, bold=met != "met"))) for what, asked, is_, met in gate_rows(gate)
    ]
    worst = f"the worst of {format_model_count(gate.source_models)}"
    note = f"ssa with guards DEFAULT and Gate, batches of {GATE_BATCH}; {worst}."
    return [Sheet("The gate", ("asked", "found", "verdict"), tuple(lines), (note,))]


def gate_rows(gate: GateFindings) -> list[tuple[str, str, str, str]]:
    """Return the gate's criteria as texts: the quantity, the criterion, the value found and the verdict."""
    clean = f"clean, {gate.batches:,} batches"
    rows = [
        (f"{clean}: without an update", f"at least {found.STILL:.0%}", f"{gate.still:.2%}", gate.still >= found.STILL),
        (
            f"{clean}: R² less Source's",
            f"at least {format_number(found.GATE_FALL)}",
            _shown(gate.fall, signed=True),
            gate.fall >= found.GATE_FALL,
        ),
    ]
    for part, batches in gate.opened.items():
        opened = "never" if math.isinf(batches) else f"{batches:.0f}"
        rows.append((f"{part}: batches until the first step", f"at most {found.FEW}", opened, batches <= found.FEW))
    return [(what, asked, is_, "met" if met else "not met") for what, asked, is_, met in rows]


def _over(results: Results) -> str:
    sizes = ", ".join(map(str, found.batch_sizes(results)))
    models = format_model_count(len(results.there("seed")))
    return f"Worst over {models}, {results.shifts} and batches of {sizes}."


def _mean(mean: Mean) -> Text:
    if not mean.runs:
        return Text("not run")
    if mean.lost:
        return Text("diverged" if mean.lost == mean.runs else f"diverged {mean.lost} of {mean.runs}")
    return Text(format_number(mean.value))


def _gain(run: Result | None) -> str:
    return "not run" if run is None else "diverged" if run.lost else format_number(run.gain, signed=True)


def _where(run: Result | None) -> str:
    if run is None:
        return ""
    return ", ".join(filter(None, [run.part, f"batches of {run.batch_size}", f"model {run.seed}"]))


def _shown(value: float, *, signed: bool = False) -> str:
    return "diverged" if not math.isfinite(value) else format_number(value, signed=signed)


Table = Sequence[Sequence[object]]


def table_files(records: Iterable[Mapping[str, Any]], setting: str) -> dict[str, str]:
    """Return the contents of all tables of a setting, by file name.

    Args:
        records: records of a run store.
        setting: name of the setting.
    """
    results = results_of(records, setting)
    files = {f"{setting}.md": _heading(results) + as_markdown(sheets_of(results))}
    for name, table in _tables(results).items():
        files[f"{setting}-{name}.csv"] = _as_csv(table)
    return files


def _heading(results: Results) -> str:
    title = SETTINGS[results.setting].title
    made_with = f"{'; '.join(results.devices) or 'no device'} ({'; '.join(results.versions) or 'nothing run'})"
    again = f"`regtta stress {results.setting} --tables-only` makes these tables again from those lines."
    left_out = f" {results.left_out} lines of other trainings, methods or guards were left out."
    kinds = [f"- `{name}`: {kind.meaning}" for name, kind in KINDS.items() if name in results.there("kind")]
    return "\n".join(
        [
            f"# Streams that are not i.i.d.: {title}",
            "",
            f"Made from {len(results.runs)} runs on {made_with}, one line each in `runs.jsonl`; {again}"
            f"{left_out if results.left_out else ''}",
            "",
            *kinds,
            "",
            "",
        ]
    )


def _tables(results: Results) -> dict[str, Table]:
    gate = found.gate_findings(results)
    return {
        "streams": [
            ("method", "kind", "batch_size", "guards", "r2", "source_r2", "runs", "diverged"),
            *(
                (row.arm, row.kind, size, guards, _plain(mean.value), _plain(row.source.value), mean.runs, mean.lost)
                for row in found.stream_rows(results)
                for (size, guards), mean in row.means.items()
            ),
        ],
        "safety": [
            ("method", "kind", "guards", "worst", "part", "batch_size", "source_model", "met"),
            *(
                (row.arm, row.kind, guards, *_worst(run), row.met if guards == SAFELY else "")
                for row in found.safety_rows(results)
                for guards, run in ((SAFELY, row.safe), (PLAIN, row.plain))
            ),
        ],
        "small-batches": [
            ("method", "batch_size", "r2", "gain", "share_kept", "met"),
            *(
                (row.arm, row.batch_size, _plain(row.r2.value), _plain(row.gain), _plain(row.kept), _verdict(row.met))
                for row in found.small_rows(results)
            ),
        ],
        "gate": [("what", "asked", "found", "verdict"), *([] if gate is None else gate_rows(gate))],
    }


def _worst(run: Result | None) -> tuple[object, ...]:
    if run is None:
        return ("", "", "", "")
    return ("diverged" if run.lost else _plain(run.gain), run.part, run.batch_size, run.seed)


def _verdict(met: bool | None) -> bool | str:
    return "" if met is None else met


def _plain(value: float) -> float | str:
    """Round to six decimals, as further ones differ between machines; empty if not finite."""
    return round(value, 6) if math.isfinite(value) else ""


def _as_csv(table: Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue()
