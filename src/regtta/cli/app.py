"""The typer application, and the commands that work on a user's own model or files."""

import logging
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from regtta._version import __version__
from regtta.cli import shared_options as shared
from regtta.cli.adapt_options import AdaptOptions, CollectOptions
from regtta.cli.error_messages import EchoWarnings, OneLineErrors, refuse_several
from regtta.cli.help_examples import help_with_examples
from regtta.cli.typer_signature import takes_options

app = typer.Typer(
    cls=OneLineErrors,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"regtta {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - handled by the callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[  # noqa: ARG001 - read by OneLineErrors
        bool, typer.Option("--traceback", help="Show the traceback of an error, not only its message.")
    ] = False,
) -> None:
    """Adapt trained regression models to shifted, unlabelled data."""
    refuse_several(ctx.invoked_subcommand)
    logger = logging.getLogger("regtta")
    if not any(isinstance(handler, EchoWarnings) for handler in logger.handlers):
        logger.addHandler(EchoWarnings(logging.WARNING))


@app.command(
    help=help_with_examples(
        "Collect source statistics.\n\nRun once, where the source data is stored. The statistics are shipped with the "
        "model and contain no sample of the data.",
        "collect",
    )
)
@takes_options(CollectOptions)
def collect(options: CollectOptions) -> None:
    """Collect source statistics."""
    from regtta.cli import views as show
    from regtta.cli.collect import collect_statistics
    from regtta.cli.torchrun import joined

    with joined() as team, show.progress_bar("collecting", shown=team.first) as progress:
        report = collect_statistics(options, progress, team)
    if team.first:
        show.collected(report)


@app.command(
    help=help_with_examples(
        "Adapt a model to unlabelled target data.\n\nWrites its predictions, its new weights, a log of every "
        "step, or all three; --export writes a file to deploy; --checkpoint lets a killed run be resumed. "
        "With --target, scores before and after are printed; only the oracle learns from labels.",
        "adapt",
    )
)
@takes_options(AdaptOptions)
def adapt(options: AdaptOptions) -> None:
    """Adapt a model to target data."""
    from regtta.cli import views as show
    from regtta.cli.adapt import adapt_model
    from regtta.cli.torchrun import joined

    with joined() as team, show.progress_bar("adapting", shown=team.first) as progress:
        report = adapt_model(options, progress, team)
    if team.first:
        show.adapted(report)


@app.command(
    help=help_with_examples(
        "Show the contents of a file: counts, rank and spectrum of source statistics, or a model's provenance.",
        "inspect",
    )
)
def inspect(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Source statistics, or an adapted model: .safetensors, .pt2, .onnx.")
    ],
    as_json: shared.AsJson = False,
) -> None:
    """Show the contents of a file."""
    from regtta.cli import views as show
    from regtta.cli.inspect import StatisticsReport, inspect_file

    report = inspect_file(file)
    if as_json:
        show.json(report.to_dict())
    elif isinstance(report, StatisticsReport):
        show.inspected(report)
    else:
        show.provenance(report)


@app.command(help=help_with_examples("List the methods; with a name, the options of that method.", "methods"))
def methods(
    name: Annotated[str | None, typer.Argument(help="One method.")] = None, as_json: shared.AsJson = False
) -> None:
    """List the methods."""
    from regtta.cli import views as show
    from regtta.cli.method_table import describe_method, list_methods

    if name is not None:
        report = describe_method(name)
        show.json(report.to_dict()) if as_json else show.method(report)
        return
    reports = list_methods()
    show.json([report.to_dict() for report in reports]) if as_json else show.methods(reports)


@app.command(
    help=help_with_examples(
        "Write a report of runs: one self-contained HTML page.\n\nTakes records of regtta adapt --record (several are "
        "compared side by side), or the folder of regtta demo or regtta reproduce.",
        "report",
    )
)
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Records or folders.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Page to write, .html.")] = Path("report.html"),
    force: shared.Force = False,
) -> None:
    """Write a report of runs."""
    from regtta.cli import views as show
    from regtta.cli.report import make_report

    show.reported(make_report(runs, out, force=force))


def add_installed_commands() -> None:
    """Add the commands of installed packages: typer applications in the entry-point group ``regtta.commands``.

    A package whose commands cannot be imported is reported and skipped.
    """
    for entry in entry_points(group="regtta.commands"):
        try:
            app.add_typer(entry.load())
        except Exception as error:  # whatever a package raises, the other commands must work
            logging.getLogger("regtta").warning(
                "The commands of %s cannot be loaded (%s: %s).", entry.value, type(error).__name__, error
            )


add_installed_commands()
