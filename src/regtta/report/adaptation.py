"""Report of one or several ``regtta adapt`` runs, built from their records."""

import math
from collections.abc import Sequence

from regtta.report.adaptation_figures import (
    make_assumption_figures,
    make_prediction_figures,
    make_shift_figures,
    make_stream_figures,
    make_subspace_figures,
)
from regtta.report.adaptation_summary import (
    Record,
    RunVerdict,
    collect_facts,
    collect_warnings,
    judge_record,
    total_divergence,
)
from regtta.report.content import Page, ReportCell, ReportTable, Section


def build_adaptation_page(records: Sequence[Record], command: str) -> Page:
    """Return the page of one record, or of several records on the same data side by side.

    Args:
        records: records written by ``regtta adapt --record``.
        command: shell command that reproduces the page.
    """
    verdicts = [judge_record(record) for record in records]
    best = _best_verdict(verdicts)
    names = _run_names(records)
    sections = [
        section
        for record, name in zip(records, names, strict=True)
        for section in _make_sections(record, "" if len(records) == 1 else f"{name}: ")
    ]
    if len(records) > 1:
        sections.insert(0, Section("Side by side", tables=(_make_comparison(records, names),)))
    commands = [str(record["command"]) for record in records]
    return Page(
        title=f"Adaptation of {records[0]['model']}",
        headline=best.headline,
        tone=best.tone,
        summary=best.summary,
        facts=collect_facts(records[0]) if len(records) == 1 else (("runs", ", ".join(names)),),
        warnings=tuple(
            warning if len(records) == 1 else f"{name}: {warning}"
            for record, name in zip(records, names, strict=True)
            for warning in collect_warnings(record)
        ),
        sections=tuple(sections),
        command="\n".join([*dict.fromkeys(commands), command]),
    )


def _best_verdict(verdicts: Sequence[RunVerdict]) -> RunVerdict:
    """Return the verdict of the run with the largest gain, or the first verdict if none has a gain."""
    return max(verdicts, key=lambda verdict: -math.inf if verdict.gain is None else verdict.gain)


def _run_names(records: Sequence[Record]) -> list[str]:
    """Return the method names, numbered where a name occurs more than once."""
    names = [str(record["environment"]["method"]["name"]) for record in records]
    return [f"{name} ({index + 1})" if names.count(name) > 1 else name for index, name in enumerate(names)]


def _make_sections(record: Record, prefix: str) -> list[Section]:
    sections = [
        Section(
            f"{prefix}Before and after",
            tables=tuple(
                table for table in (_make_score_table(record), _make_shift_table(record)) if table is not None
            ),
            figures=make_shift_figures(record),
        ),
        Section(f"{prefix}Predictions", figures=make_prediction_figures(record)),
        Section(
            f"{prefix}The stream",
            _stream_sentences(record),
            _make_rejection_tables(record),
            make_stream_figures(record),
        ),
        Section(f"{prefix}The source's subspace", figures=make_subspace_figures(record)),
        Section(f"{prefix}Assumptions of alignment", figures=make_assumption_figures(record)),
    ]
    return [section for section in sections if section.tables or section.figures or section.paragraphs]


def _make_comparison(records: Sequence[Record], names: Sequence[str]) -> ReportTable:
    rows = []
    for record, name in zip(records, names, strict=True):
        scores = record.get("scores") or {}
        before, after = (_number_cell((scores.get(key) or {}).get("r2")) for key in ("before", "after"))
        left = {key: _divergence(record, key) for key in ("before", "after")}
        batches = record["learned"] + sum(record["refused"].values())
        rows.append(
            (
                *(ReportCell(name), before, after, _number_cell(left["before"]), _number_cell(left["after"])),
                ReportCell(f"{record['learned']} of {batches}"),
            )
        )
    columns = ("run", "R² before", "R² after", "distance before", "distance after", "learned from")
    return ReportTable("Runs", columns, tuple(rows), ("Distance: symmetric KL to the source over its subspace.",))


def _make_score_table(record: Record) -> ReportTable | None:
    scores = record.get("scores")
    if not scores:
        return None
    columns = {"r2": "R²", "rmse": "RMSE", "mae": "MAE", "pearson": "Pearson's r"}
    rows = tuple(
        (ReportCell(label), *(_number_cell(scores[key][score]) for score in columns))
        for key, label in (("before", "as trained"), ("after", f"adapted, {record['protocol']}"))
    )
    note = f"{scores['after']['count']} samples with labels."
    return ReportTable("Scores", ("model", *columns.values()), rows, (note,))


def _make_shift_table(record: Record) -> ReportTable | None:
    shift = record.get("shift")
    if not shift:
        return None
    shares = record["subspace"]["output_shares"]
    rows = tuple(
        (
            ReportCell(str(index), value=float(index)),
            _number_cell(shares[index]),
            *(
                _number_cell(shift[moment][key][index])
                for moment in ("means", "spreads")
                for key in ("before", "after")
            ),
        )
        for index in range(len(shift["means"]["before"]))
    )
    columns = ("direction", "share of the output", "mean before", "mean after", "spread before", "spread after")
    note = "Means in the source's standard deviations, spreads over the source's: the source has 0 and 1."
    return ReportTable("Shift along the source's directions", columns, rows, (note,))


def _make_rejection_tables(record: Record) -> tuple[ReportTable, ...]:
    if not record["refused"]:
        return ()
    rows = tuple(
        (ReportCell(reason), ReportCell(str(count), value=float(count))) for reason, count in record["refused"].items()
    )
    return (ReportTable("Batches not learned from", ("reason", "batches"), rows),)


def _stream_sentences(record: Record) -> tuple[str, ...]:
    batches = record["learned"] + sum(record["refused"].values())
    return (f"{record['samples']} samples in {batches} batches, {record['learned']} of them learned from.",)


def _divergence(record: Record, key: str) -> float | None:
    shift = record.get("shift")
    return None if not shift else total_divergence(shift, key)


def _number_cell(value: float | None) -> ReportCell:
    if value is None:
        return ReportCell("–")
    return ReportCell("∞" if math.isinf(value) else f"{value:.4g}".replace("-", "−"), value=float(value))
