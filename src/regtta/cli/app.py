"""The typer application, and the commands that work on a user's own model or files."""

import logging
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from regtta._version import __version__
from regtta.cli import shared_options as shared
from regtta.cli.adapt_options import AdaptOptions, CheckOptions, CollectOptions, SelectOptions
from regtta.cli.error_messages import OneLineErrorGroup, StderrWarningHandler, reject_multiple_processes
from regtta.cli.help_examples import help_with_examples
from regtta.cli.typer_signature import takes_options

app = typer.Typer(
    cls=OneLineErrorGroup,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"regtta {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - handled by the callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[  # noqa: ARG001 - read by OneLineErrorGroup
        bool, typer.Option("--traceback", help="Show the traceback of an error, not only its message.")
    ] = False,
) -> None:
    """Adapt trained regression models to shifted, unlabelled data."""
    reject_multiple_processes(ctx.invoked_subcommand)
    logger = logging.getLogger("regtta")
    if not any(isinstance(handler, StderrWarningHandler) for handler in logger.handlers):
        logger.addHandler(StderrWarningHandler(logging.WARNING))


@app.command(
    "collect",
    help=help_with_examples(
        "Collect source statistics.\n\nRun once, where the source data is stored. The statistics are shipped with the "
        "model and contain no sample of the data.",
        "collect",
    ),
)
@takes_options(CollectOptions)
def collect_command(options: CollectOptions) -> None:
    """Collect source statistics."""
    from regtta.cli import views
    from regtta.cli.collect import collect_statistics
    from regtta.cli.torchrun import join_worker_group

    with join_worker_group() as workers, views.progress_bar("collecting", enabled=workers.is_first) as progress:
        report = collect_statistics(options, progress, workers)
    if workers.is_first:
        views.print_collect_report(report)


@app.command(
    "check",
    help=help_with_examples(
        "Check a model, its data and source statistics before a run.\n\nReads the first batch of the data as regtta "
        "adapt does, and reports what will be adapted, what looks wrong and how to correct it, and what a step will "
        "cost. The exit status is 1 if there are errors.",
        "check",
    ),
)
@takes_options(CheckOptions)
def check_command(options: CheckOptions, as_json: shared.AsJsonOption = False) -> None:
    """Check a model, its data and source statistics."""
    from regtta.cli import views
    from regtta.cli.check import check_model_and_data

    result = check_model_and_data(options)
    views.print_json(result.to_dict()) if as_json else views.print_check_result(result)
    if not result.ok:
        raise typer.Exit(1)


@app.command(
    "adapt",
    help=help_with_examples(
        "Adapt a model to unlabelled target data.\n\nWrites its predictions, its new weights, a log of every "
        "step, or all three; --export writes a file to deploy; --checkpoint lets a killed run be resumed. "
        "With --target, scores before and after are printed; only the oracle learns from labels.",
        "adapt",
    ),
)
@takes_options(AdaptOptions)
def adapt_command(options: AdaptOptions) -> None:
    """Adapt a model to target data."""
    from regtta.cli import views
    from regtta.cli.adapt import adapt_model
    from regtta.cli.torchrun import join_worker_group

    with join_worker_group() as workers, views.progress_bar("adapting", enabled=workers.is_first) as progress:
        report = adapt_model(options, progress, workers)
    if workers.is_first:
        views.print_adapt_report(report)


@app.command(
    "select",
    help=help_with_examples(
        "Choose a method by a few labelled target samples.\n\nEvery candidate adapts to the unlabelled data, and its "
        "predictions of the labelled samples are compared with those of the unadapted model. A method is recommended "
        "only if it is shown to help.",
        "select",
    ),
)
@takes_options(SelectOptions)
def select_command(options: SelectOptions, as_json: shared.AsJsonOption = False) -> None:
    """Choose a method by labelled samples."""
    from regtta.cli import views
    from regtta.cli.select import select_method

    with views.progress_bar("adapting") as progress:
        report = select_method(options, progress)
    views.print_json(report.result.to_dict()) if as_json else views.print_select_report(report)


@app.command(
    "inspect",
    help=help_with_examples(
        "Show the contents of a file: counts, rank and spectrum of source statistics, or a model's provenance.",
        "inspect",
    ),
)
def inspect_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Source statistics, or an adapted model: .safetensors, .pt2, .onnx.")
    ],
    as_json: shared.AsJsonOption = False,
) -> None:
    """Show the contents of a file."""
    from regtta.cli import views
    from regtta.cli.inspect import StatisticsReport, inspect_file

    report = inspect_file(file)
    if as_json:
        views.print_json(report.to_dict())
    elif isinstance(report, StatisticsReport):
        views.print_statistics_report(report)
    else:
        views.print_provenance(report)


@app.command(
    "methods", help=help_with_examples("List the methods; with a name, the options of that method.", "methods")
)
def methods_command(
    name: Annotated[str | None, typer.Argument(help="One method.")] = None, as_json: shared.AsJsonOption = False
) -> None:
    """List the methods."""
    from regtta.cli import views
    from regtta.cli.method_table import describe_method, list_methods

    if name is not None:
        report = describe_method(name)
        views.print_json(report.to_dict()) if as_json else views.print_method(report)
        return
    reports = list_methods()
    views.print_json([report.to_dict() for report in reports]) if as_json else views.print_method_list(reports)


@app.command(
    "report",
    help=help_with_examples(
        "Write a report of runs: one self-contained HTML page.\n\nTakes records of regtta adapt --record (several are "
        "compared side by side), or the folder of regtta demo or regtta reproduce.",
        "report",
    ),
)
def report_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Records or folders.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Page to write, .html.")] = Path("report.html"),
    force: shared.ForceOption = False,
) -> None:
    """Write a report of runs."""
    from regtta.cli import views
    from regtta.cli.report import make_report

    views.print_written_report(make_report(runs, out, force=force))


def add_installed_commands() -> None:
    """Add the commands of installed packages: typer applications in the entry-point group ``regtta.commands``.

    A package whose commands cannot be imported is reported and skipped.
    """
    for entry in entry_points(group="regtta.commands"):
        try:
            found = entry.load()
            if not isinstance(found, typer.Typer):
                raise TypeError(f"expected a typer.Typer, found {found!r}")
            app.add_typer(found)
        except Exception as error:  # whatever a package raises, the other commands must work
            logging.getLogger("regtta").warning(
                "The commands of %s cannot be loaded (%s: %s).", entry.value, type(error).__name__, error
            )


add_installed_commands()
