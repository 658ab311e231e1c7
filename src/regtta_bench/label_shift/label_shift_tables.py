"""Tables of a study as Markdown and CSV, generated from its records."""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence

from regtta.report.formatting import format_number
from regtta_bench.label_shift.label_shift_findings import (
    ALL,
    COMBINED_SIGNAL,
    MIN_LABEL_SHIFT,
    SECOND_HALF,
    VERDICTS,
    CautionRow,
    RocRow,
    StudyRecord,
    VerdictRow,
    caution_rows,
    roc_rows,
    select_cases,
    verdict_rows,
)
from regtta_bench.label_shift.roc import Roc

ABOUT = "about"


def make_study_tables(lines: Sequence[StudyRecord]) -> Mapping[str, str]:
    """Return the text of each file except the figure, by file name."""
    about = next(line for line in lines if line["record"] == ABOUT)
    rocs, verdicts, caution = roc_rows(lines), verdict_rows(lines), caution_rows(lines)
    name = about["data"]
    return {
        f"{name}.md": _page(about, select_cases(lines), rocs, verdicts, caution),
        f"{name}-roc.csv": _csv(
            ("question", "signal", "models", "n", "auc", "low", "high", "found_at_5_percent", "positives", "negatives"),
            (
                (r.question, r.signal, r.models, r.n or "all", *_areas(r.roc), r.roc.positives, r.roc.negatives)
                for r in rocs
            ),
        ),
        f"{name}-verdicts.csv": _csv(
            ("kind", "n", "models", "cases", *VERDICTS),
            ((v.kind, v.n, v.models, v.cases, *map(_digits, v.shares)) for v in verdicts),
        ),
        f"{name}-caution.csv": _csv(
            ("stream", "arm", "source_models", "mean", "sd"),
            ((c.stream, c.method_name, len(c.r2), _digits(c.mean), _digits(_sd(c))) for c in caution),
        ),
    }


def _page(
    about: StudyRecord,
    cases: Sequence[StudyRecord],
    rocs: Sequence[RocRow],
    verdicts: Sequence[VerdictRow],
    caution: Sequence[CautionRow],
) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    smoke = " (smoke run, not a result)" if about["quick"] else ""
    seeds = f"seeds {about['seeds'][0]} to {about['seeds'][-1]}"
    head = [
        f"# Label shift: {about['data']}{smoke}",
        "",
        f"Made by `regtta label-shift {about['data']}` from {len(cases)} shifts constructed from held-out source "
        f"samples of {len(about['seeds'])} source models ({seeds}; {versions}), "
        f"one line each in `{about['data']}.jsonl`. A label shift moves the mean label by {MIN_LABEL_SHIFT} source "
        "standard deviations or more; cases that move it by less count for no question.",
        "",
    ]
    return "\n".join([*head, *_roc_part(rocs), *_verdict_part(verdicts), *_caution_part(caution)])


def _roc_part(rocs: Sequence[RocRow]) -> list[str]:
    """Return one table per question: AUC with its interval, counts, and detection rate at 5 % false alarms."""
    made = []
    for question in dict.fromkeys(row.question for row in rocs):
        mine = [row for row in rocs if row.question == question and row.n == 0]
        later = {row.signal: row.roc for row in mine if row.models == SECOND_HALF}
        first = next(row.roc for row in mine if row.models == ALL)
        made += [
            f"## {question}",
            "",
            f"{first.positives} positives, {first.negatives} negatives on all source models.",
            "",
            "| signal | AUC, all models | found at 5 % false alarms | AUC, second half |",
            "|---|---|---|---|",
        ]
        rows = sorted((row for row in mine if row.models == ALL), key=lambda row: -row.roc.auc)
        made += [
            f"| {r.signal} | {_area(r)} | {r.roc.tpr_at_5_percent:.2f} | {_second(later, r.signal)} |" for r in rows
        ]
        if COMBINED_SIGNAL in later:
            made.append(f"| {COMBINED_SIGNAL}, fitted on the first half | | | {_second(later, COMBINED_SIGNAL)} |")
        made.append("")
    return made


def _area(row: RocRow) -> str:
    return f"{row.roc.auc:.3f} [{row.roc.low:.3f}, {row.roc.high:.3f}]"


def _second(later: Mapping[str, Roc], signal: str) -> str:
    found = later.get(signal)
    return "–" if found is None else f"{found.auc:.3f}"


def _verdict_part(verdicts: Sequence[VerdictRow]) -> list[str]:
    made = [
        "## Verdicts of `regtta.label_shift`",
        "",
        "On the second half of the source models; the thresholds were chosen on the first.",
        "",
        f"| shift | samples | cases | {' | '.join(VERDICTS)} |",
        "|---|---|---|" + "---|" * len(VERDICTS),
    ]
    rows = [row for row in verdicts if row.models == SECOND_HALF]
    made += [f"| {r.kind} | {r.n} | {r.cases} | {' | '.join(f'{share:.0%}' for share in r.shares)} |" for r in rows]
    return [*made, ""]


def _caution_part(caution: Sequence[CautionRow]) -> list[str]:
    """Return the table of online R², with one row per method and one column per stream."""
    streams = list(dict.fromkeys(row.stream for row in caution))
    names = list(dict.fromkeys(row.method_name for row in caution))
    if not caution:
        return []
    by_cell = {(row.stream, row.method_name): row for row in caution}
    models = max(len(row.r2) for row in caution)
    made = [
        "## What adapting does",
        "",
        f"R² online, mean over {models} source models.",
        "",
        f"| | {' | '.join(streams)} |",
        "|---|" + "---|" * len(streams),
    ]
    # Verdicts may differ between source models, so this row may combine several methods.
    made += [f"| {name} | {' | '.join(_cell(by_cell.get((stream, name))) for stream in streams)} |" for name in names]
    return [*made, ""]


def _cell(row: CautionRow | None) -> str:
    return "–" if row is None else format_number(row.mean)


def _areas(roc: Roc) -> tuple[str, ...]:
    return tuple(map(_digits, (roc.auc, roc.low, roc.high, roc.tpr_at_5_percent)))


def _sd(row: CautionRow) -> float:
    return statistics.stdev(row.r2) if len(row.r2) > 1 else float("nan")


def _digits(value: float) -> str:
    return "" if value != value else f"{value:.4f}"  # noqa: PLR0124 - NaN has no digits


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
