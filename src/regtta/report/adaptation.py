"""Report of one or several ``regtta adapt`` runs, built from their records."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from regtta.report.adaptation_figures import (
    assumption_pictures,
    prediction_pictures,
    shift_pictures,
    stream_pictures,
    subspace_pictures,
)
from regtta.report.adaptation_summary import Verdict, distance, facts_of, verdict_of, warnings_of
from regtta.report.content import Entry, Grid, Page, Section

Record = Mapping[str, Any]


def adaptation_page(records: Sequence[Record], command: str) -> Page:
    """Return the page of one record, or of several records on the same data side by side.

    Args:
        records: records written by ``regtta adapt --record``.
        command: shell command that reproduces the page.
    """
    verdicts = [verdict_of(record) for record in records]
    best = _best(verdicts)
    names = _names(records)
    sections = [
        section
        for record, name in zip(records, names, strict=True)
        for section in _sections(record, "" if len(records) == 1 else f"{name}: ")
    ]
    if len(records) > 1:
        sections.insert(0, Section("Side by side", grids=(_side_by_side(records, names),)))
    made = [str(record["command"]) for record in records]
    return Page(
        title=f"Adaptation of {records[0]['model']}",
        headline=best.headline,
        tone=best.tone,
        summary=best.summary,
        facts=facts_of(records[0]) if len(records) == 1 else (("runs", ", ".join(names)),),
        warnings=tuple(
            warning if len(records) == 1 else f"{name}: {warning}"
            for record, name in zip(records, names, strict=True)
            for warning in warnings_of(record)
        ),
        sections=tuple(sections),
        command="\n".join([*dict.fromkeys(made), command]),
    )


def _best(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of the run with the largest gain, or the first verdict if none has a gain."""
    return max(verdicts, key=lambda verdict: -math.inf if verdict.gain is None else verdict.gain)


def _names(records: Sequence[Record]) -> list[str]:
    """Return the method names, numbered where a name occurs more than once."""
    names = [str(record["environment"]["method"]["name"]) for record in records]
    return [f"{name} ({place + 1})" if names.count(name) > 1 else name for place, name in enumerate(names)]


def _sections(record: Record, prefix: str) -> list[Section]:
    made = [
        Section(
            f"{prefix}Before and after",
            grids=tuple(grid for grid in (_scores(record), _shift(record)) if grid is not None),
            pictures=shift_pictures(record),
        ),
        Section(f"{prefix}Predictions", pictures=prediction_pictures(record)),
        Section(f"{prefix}The stream", _stream_words(record), _refused(record), stream_pictures(record)),
        Section(f"{prefix}The source's subspace", pictures=subspace_pictures(record)),
        Section(f"{prefix}What alignment takes for granted", pictures=assumption_pictures(record)),
    ]
    return [section for section in made if section.grids or section.pictures or section.paragraphs]


def _side_by_side(records: Sequence[Record], names: Sequence[str]) -> Grid:
    rows = []
    for record, name in zip(records, names, strict=True):
        scores = record.get("scores") or {}
        before, after = (_number((scores.get(key) or {}).get("r2")) for key in ("before", "after"))
        left = {key: _divergence(record, key) for key in ("before", "after")}
        batches = record["learned"] + sum(record["refused"].values())
        rows.append(
            (
                *(Entry(name), before, after, _number(left["before"]), _number(left["after"])),
                Entry(f"{record['learned']} of {batches}"),
            )
        )
    columns = ("run", "R² before", "R² after", "distance before", "distance after", "learned from")
    return Grid("Runs", columns, tuple(rows), ("Distance: symmetric KL to the source over its subspace.",))


def _scores(record: Record) -> Grid | None:
    scores = record.get("scores")
    if not scores:
        return None
    columns = {"r2": "R²", "rmse": "RMSE", "mae": "MAE", "pearson": "Pearson's r"}
    rows = tuple(
        (Entry(label), *(_number(scores[key][score]) for score in columns))
        for key, label in (("before", "as trained"), ("after", f"adapted, {record['protocol']}"))
    )
    note = f"{scores['after']['count']} samples with labels."
    return Grid("Scores", ("model", *columns.values()), rows, (note,))


def _shift(record: Record) -> Grid | None:
    shift = record.get("shift")
    if not shift:
        return None
    carried = record["subspace"]["output_shares"]
    rows = tuple(
        (
            Entry(str(place), value=float(place)),
            _number(carried[place]),
            *(_number(shift[moment][key][place]) for moment in ("means", "spreads") for key in ("before", "after")),
        )
        for place in range(len(shift["means"]["before"]))
    )
    columns = ("direction", "share of the output", "mean before", "mean after", "spread before", "spread after")
    note = "Means in the source's standard deviations, spreads over the source's: the source has 0 and 1."
    return Grid("Shift along the source's directions", columns, rows, (note,))


def _refused(record: Record) -> tuple[Grid, ...]:
    if not record["refused"]:
        return ()
    rows = tuple((Entry(reason), Entry(str(count), value=float(count))) for reason, count in record["refused"].items())
    return (Grid("Batches not learned from", ("reason", "batches"), rows),)


def _stream_words(record: Record) -> tuple[str, ...]:
    batches = record["learned"] + sum(record["refused"].values())
    return (f"{record['samples']} samples in {batches} batches, {record['learned']} of them learned from.",)


def _divergence(record: Record, key: str) -> float | None:
    shift = record.get("shift")
    return None if not shift else distance(shift, key)


def _number(value: float | None) -> Entry:
    if value is None:
        return Entry("–")
    return Entry("∞" if math.isinf(value) else f"{value:.4g}".replace("-", "−"), value=float(value))
