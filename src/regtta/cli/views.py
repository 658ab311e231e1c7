"""Printing of the commands' reports on the terminal."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from regtta.cli.error_messages import to_command_line_terms
from regtta.options import list_names

if TYPE_CHECKING:
    from regtta.checks import CheckResult
    from regtta.cli.adapt_report import AdaptReport
    from regtta.cli.collect import CollectReport
    from regtta.cli.inspect import StatisticsReport
    from regtta.cli.method_table import MethodReport
    from regtta.cli.predictions import Progress as ProgressCallback
    from regtta.cli.report import WrittenReport
    from regtta.cli.select import SelectReport
    from regtta.metrics import Scores
    from regtta.persistence import Provenance
    from regtta.selection import CandidateScore

_DIRECTIONS_SHOWN = 10
_REASONS_SHOWN = 5
_BAR_WIDTH = 24


@contextmanager
def progress_bar(label: str, *, enabled: bool = True) -> Iterator["ProgressCallback | None"]:
    """Show a progress bar on stderr while the block runs, and yield the callback that updates it.

    The callback takes the number of samples seen and the total. Yields None if stderr is not a terminal.
    """
    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("samples"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda seen, total: bar.update(task, completed=seen, total=total)


def print_collect_report(report: "CollectReport") -> None:
    """Print the report of ``regtta collect``."""
    print_facts(*_count_facts(report), ("written", str(report.out)))


def print_check_result(result: "CheckResult") -> None:
    """Print the findings of ``regtta check``, and the number of errors and warnings."""
    styles = {"ok": "green", "warning": "yellow", "error": "bold red"}
    console = Console(soft_wrap=True)
    for finding in result.findings:
        line = Text(f"{finding.level:<9}", style=styles[finding.level]) + Text(f"{finding.topic:<15}", style="dim")
        console.print(line + Text(to_command_line_terms(finding.message)), highlight=False)
    print_facts(("result", f"{result.headline}, for {result.method}"))


def print_adapt_report(report: "AdaptReport") -> None:
    """Print the report of ``regtta adapt``, with scores where there are labels."""
    batches = report.learned + sum(report.refused.values())
    print_facts(
        ("method", f"{report.method}, {report.protocol}"),
        ("samples", f"{report.samples:,}"),
        ("learned from", f"{report.learned:,} of {_format_count(batches, 'batch', 'batches')}"),
    )
    reasons = list(report.refused.items())
    for reason, count in reasons[:_REASONS_SHOWN]:
        print_facts(("refused", f"{count:,}: {reason}"))
    if len(reasons) > _REASONS_SHOWN:
        rest = sum(count for _, count in reasons[_REASONS_SHOWN:])
        print_facts(("refused", f"{rest:,}: for other reasons"))
    if report.excluded:
        print_facts(("left out", f"{_format_count(report.excluded, 'sample', 'samples')}, not finite or an outlier"))
    if report.not_finite:
        print_facts(("not finite", f"{_format_count(report.not_finite, 'prediction', 'predictions')}"))
    if report.scores is not None:
        if report.unscored:
            print_facts(("not scored", f"{_format_count(report.unscored, 'row', 'rows')} with missing values"))
        _print_scores(f"{report.method}, {report.protocol}", *report.scores)
    for line in report.alarms:
        print_facts(("alarm", line))
    for path in report.written:
        print_facts(("written", str(path)))


def print_select_report(report: "SelectReport") -> None:
    """Print the scores of all candidates, the recommendation and its reason."""
    from regtta.selection import describe_correction

    result = report.result
    print_facts(("labelled", f"{result.labels:,} samples"), ("adapted to", f"{result.stream:,} samples"))
    table = make_table("name", "R²>", "RMSE>", "MAE>", "gain>", "interval>", "p>", "")
    for row in result.rows:
        compared = ("", "", "") if row is result.rows[0] else _format_gain(row)
        decision = "" if row is result.rows[0] else row.decision
        table.add_row(row.name, f"{row.r2:.4f}", f"{row.rmse:.4g}", f"{row.mae:.4g}", *compared, decision)
    print_table(table)
    print_facts(("recommended", result.recommended), ("reason", result.reason))
    print_facts(*(("correction", line) for line in describe_correction(result.correction)))
    print_facts(*(("left out", f"{name}: {to_command_line_terms(why)}") for name, why in result.skipped.items()))
    print_facts(("next", report.next_command))


def _format_gain(row: "CandidateScore") -> tuple[str, str, str]:
    return f"{row.gain:+.4f}", f"{row.low:+.4f} to {row.high:+.4f}", f"{row.p_value:.4f}"


def print_statistics_report(report: "StatisticsReport") -> None:
    """Print the source statistics that ``regtta inspect`` read."""
    print_facts(
        *_count_facts(report),
        ("fingerprint", report.fingerprint),
        ("columns", f"{len(report.columns):,}: {list_names(report.columns)}" if report.columns else "not known"),
        ("inputs", _format_input_moments(report.input_moments)),
        *([("extras", ", ".join(report.extras))] if report.extras else []),
    )
    table = make_table("", "variance>", "share>", "cumulative>", "")
    largest = max((direction.share for direction in report.spectrum), default=0.0) or 1.0
    for index, direction in enumerate(report.spectrum[:_DIRECTIONS_SHOWN], start=1):
        bar = "█" * max(round(direction.share / largest * _BAR_WIDTH), 0)
        table.add_row(
            str(index),
            f"{direction.variance:.4g}",
            f"{direction.share:.2%}",
            f"{direction.cumulative:.2%}",
            bar,
        )
    hidden = len(report.spectrum) - _DIRECTIONS_SHOWN
    if hidden > 0:
        table.add_row("…", "", "", "", f"{hidden:,} more")
    print_table(table)
    for share, count in report.directions_for.items():
        print_facts((f"{share * 100:g} %", f"of the variance in {_format_count(count, 'direction', 'directions')}"))


def print_provenance(provenance: "Provenance") -> None:
    """Print the provenance of an exported model."""
    options = {name: value for name, value in provenance.method.items() if name != "type"}
    samples = provenance.samples_behind_statistics
    print_facts(
        ("method", str(provenance.method.get("type"))),
        *(("", f"{name}={value}") for name, value in options.items()),
        ("head", provenance.head or "none"),
        ("statistics", "none" if samples is None else f"of {_format_count(samples, 'sample', 'samples')}"),
        ("learned from", f"{provenance.learned:,} of {_format_count(provenance.batches, 'batch', 'batches')}"),
        ("source", provenance.source),
        ("adapted", provenance.adapted),
        ("begun", provenance.begun),
        ("exported", provenance.exported),
        ("by", f"regtta {provenance.regtta}, torch {provenance.torch}"),
    )


def print_method_list(reports: Sequence["MethodReport"]) -> None:
    """Print a table of all methods."""
    table = make_table("name", "what it does", "needs", "paper")
    for report in reports:
        table.add_row(report.name, report.summary, _format_needs(report), report.paper)
    print_table(table)


def print_method(report: "MethodReport") -> None:
    """Print one method and its options."""
    print_facts(
        ("name", report.name), ("does", report.summary), ("needs", _format_needs(report)), ("paper", report.paper)
    )
    if not report.options:
        print_facts(("options", "none"))
        return
    table = make_table("--set", "type", "default", "meaning")
    for option in report.options:
        table.add_row(option.name, option.type, str(option.default).lower(), option.meaning)
    print_table(table)


def print_json(value: object) -> None:
    """Print ``value`` as JSON."""
    Console(soft_wrap=True, highlight=False, markup=False).print(
        json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    )


def print_written_report(report: "WrittenReport") -> None:
    """Print the headline of ``regtta report`` and the path of its page."""
    print_facts(("verdict", report.headline), ("written", str(report.path)))


def _print_scores(name: str, before: "Scores", after: "Scores") -> None:
    table = make_table("", "R²>", "RMSE>", "MAE>", "Pearson>")
    for row, scores in (("unadapted", before), (name, after)):
        values = (scores.r2, scores.rmse, scores.mae, scores.pearson)
        table.add_row(row, *(f"{value:.4f}" for value in values))
    print_table(table)


def _count_facts(report: "CollectReport | StatisticsReport") -> tuple[tuple[str, str], ...]:
    return (
        ("samples", f"{report.samples:,}"),
        ("head", report.head),
        ("dimensions", f"{report.dimensions:,}"),
        ("valid", f"{report.valid_dimensions:,}"),
        ("rank", f"{report.rank:,}"),
    )


def _format_input_moments(columns: int) -> str:
    return f"mean and variance of {_format_count(columns, 'column', 'columns')}" if columns else "no moments"


def _format_needs(report: "MethodReport") -> str:
    return ", ".join(report.needs) or "nothing"


def _format_count(count: int, singular: str, plural: str) -> str:
    return f"{count:,} {singular if count == 1 else plural}"


def print_facts(*facts: tuple[str, str]) -> None:
    """Print name and value, one pair per line, without wrapping so that paths can be copied."""
    console = Console(soft_wrap=True)
    for name, value in facts:
        console.print(Text(f"{name:<13}", style="dim") + Text(value), highlight=False)


def make_table(*columns: str) -> Table:
    """Return an empty table; a column whose title ends in ``>`` is right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns:
        right = title.endswith(">")
        # Names are typed by users, so they are never wrapped.
        table.add_column(
            Text(title.removesuffix(">")), justify="right" if right else "left", no_wrap=title in ("name", "--set")
        )
    return table


def print_table(table: Table) -> None:
    """Print a table between two empty lines."""
    console = Console(highlight=False, markup=False)
    console.print()
    console.print(table)
    console.print()
