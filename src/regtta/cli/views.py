"""Printing of the commands' reports on the terminal."""

import json as json_module
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

if TYPE_CHECKING:
    from regtta.cli.adapt_report import AdaptReport
    from regtta.cli.collect import CollectReport
    from regtta.cli.inspect import StatisticsReport
    from regtta.cli.method_table import MethodReport
    from regtta.cli.predictions import Progress as Told
    from regtta.cli.report import WrittenReport
    from regtta.metrics import Scores
    from regtta.persistence import Provenance

_DIRECTIONS_SHOWN = 10
_REASONS_SHOWN = 5
_BAR_WIDTH = 24


@contextmanager
def progress_bar(label: str, *, shown: bool = True) -> Iterator["Told | None"]:
    """Show a progress bar on stderr while the block runs, and yield the callback that updates it.

    The callback takes the number of samples seen and the total. Yields None if stderr is not a terminal.
    """
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
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


def collected(report: "CollectReport") -> None:
    """Print the report of ``regtta collect``."""
    print_facts(*_counts(report), ("written", str(report.out)))


def adapted(report: "AdaptReport") -> None:
    """Print the report of ``regtta adapt``, with scores where there are labels."""
    batches = report.learned + sum(report.refused.values())
    print_facts(
        ("method", f"{report.method}, {report.protocol}"),
        ("samples", f"{report.samples:,}"),
        ("learned from", f"{report.learned:,} of {_counted(batches, 'batch', 'batches')}"),
    )
    reasons = list(report.refused.items())
    for reason, count in reasons[:_REASONS_SHOWN]:
        print_facts(("refused", f"{count:,}: {reason}"))
    if len(reasons) > _REASONS_SHOWN:
        rest = sum(count for _, count in reasons[_REASONS_SHOWN:])
        print_facts(("refused", f"{rest:,}: for other reasons"))
    if report.excluded:
        print_facts(("left out", f"{_counted(report.excluded, 'sample', 'samples')}, not finite or an outlier"))
    if report.not_finite:
        print_facts(("not finite", f"{_counted(report.not_finite, 'prediction', 'predictions')}"))
    if report.scores is not None:
        if report.unscored:
            print_facts(("not scored", f"{_counted(report.unscored, 'row', 'rows')} with missing values"))
        _scores(f"{report.method}, {report.protocol}", *report.scores)
    for line in report.alarms:
        print_facts(("alarm", line))
    for path in report.written:
        print_facts(("written", str(path)))


def inspected(report: "StatisticsReport") -> None:
    """Print the source statistics that ``regtta inspect`` read."""
    print_facts(
        *_counts(report),
        ("fingerprint", report.fingerprint),
        *([("extras", ", ".join(report.extras))] if report.extras else []),
    )
    table = new_table("", "variance>", "share>", "cumulative>", "")
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
        print_facts((f"{share * 100:g} %", f"of the variance in {_counted(count, 'direction', 'directions')}"))


def provenance(found: "Provenance") -> None:
    """Print the provenance of an exported model."""
    options = {name: value for name, value in found.method.items() if name != "type"}
    samples = found.samples_behind_statistics
    print_facts(
        ("method", str(found.method.get("type"))),
        *(("", f"{name}={value}") for name, value in options.items()),
        ("head", found.head or "none"),
        ("statistics", "none" if samples is None else f"of {_counted(samples, 'sample', 'samples')}"),
        ("learned from", f"{found.learned:,} of {_counted(found.batches, 'batch', 'batches')}"),
        ("source", found.source),
        ("adapted", found.adapted),
        ("begun", found.begun),
        ("exported", found.exported),
        ("by", f"regtta {found.regtta}, torch {found.torch}"),
    )


def methods(reports: Sequence["MethodReport"]) -> None:
    """Print a table of all methods."""
    table = new_table("name", "what it does", "needs", "paper")
    for report in reports:
        table.add_row(report.name, report.summary, _needs(report), report.paper)
    print_table(table)


def method(report: "MethodReport") -> None:
    """Print one method and its options."""
    print_facts(("name", report.name), ("does", report.summary), ("needs", _needs(report)), ("paper", report.paper))
    if not report.options:
        print_facts(("options", "none"))
        return
    table = new_table("--set", "type", "default", "meaning")
    for option in report.options:
        table.add_row(option.name, option.type, str(option.default).lower(), option.meaning)
    print_table(table)


def json(value: object) -> None:
    """Print ``value`` as JSON."""
    Console(soft_wrap=True, highlight=False, markup=False).print(
        json_module.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    )


def reported(report: "WrittenReport") -> None:
    """Print the headline of ``regtta report`` and the path of its page."""
    print_facts(("verdict", report.headline), ("written", str(report.path)))


def _scores(name: str, before: "Scores", after: "Scores") -> None:
    table = new_table("", "R²>", "RMSE>", "MAE>", "Pearson>")
    for row, scores in (("unadapted", before), (name, after)):
        values = (scores.r2, scores.rmse, scores.mae, scores.pearson)
        table.add_row(row, *(f"{value:.4f}" for value in values))
    print_table(table)


def _counts(report: "CollectReport | StatisticsReport") -> tuple[tuple[str, str], ...]:
    return (
        ("samples", f"{report.samples:,}"),
        ("head", report.head),
        ("dimensions", f"{report.dimensions:,}"),
        ("valid", f"{report.valid_dimensions:,}"),
        ("rank", f"{report.rank:,}"),
    )


def _needs(report: "MethodReport") -> str:
    return ", ".join(report.needs) or "nothing"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def print_facts(*facts: tuple[str, str]) -> None:
    """Print name and value, one pair per line, without wrapping so that paths can be copied."""
    console = Console(soft_wrap=True)
    for name, value in facts:
        console.print(Text(f"{name:<13}", style="dim") + Text(value), highlight=False)


def new_table(*columns: str) -> Table:
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
