"""Files of the benchmark's tables, rendered from the lines of a run store."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regtta.experiments.reproduce.rendering import as_markdown
from regtta.experiments.stress import findings as found
from regtta.experiments.stress.arms import PLAIN, SAFELY
from regtta.experiments.stress.results import Result, Results, results_of
from regtta.experiments.stress.settings import SETTINGS
from regtta.experiments.stress.sheets import gate_rows, sheets_of
from regtta.experiments.stress.streams import KINDS

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
