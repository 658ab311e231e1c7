"""The typer application: parse, call, print. Here are the commands on a model of the user's own."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from regtta._version import __version__
from regtta.commands.options import shared
from regtta.commands.options.adapt import AdaptOptions
from regtta.commands.options.collect import CollectOptions
from regtta.commands.terminal import studies
from regtta.commands.terminal.complaints import EchoWarnings, OneLineErrors, refuse_several
from regtta.commands.terminal.examples import help_with_examples
from regtta.commands.terminal.parameters import takes_options

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
    version: Annotated[  # noqa: ARG001 - the callback answers
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[  # noqa: ARG001 - read where errors are told
        bool, typer.Option("--traceback", help="Show where an error came from, not only what it says.")
    ] = False,
) -> None:
    """Adapts trained regression models to shifted, unlabelled data."""
    refuse_several(ctx.invoked_subcommand)
    logger = logging.getLogger("regtta")
    if not any(isinstance(handler, EchoWarnings) for handler in logger.handlers):
        logger.addHandler(EchoWarnings(logging.WARNING))


@app.command(
    help=help_with_examples(
        "Collect source statistics.\n\nDone once, where the source data lies: they travel with the model, "
        "and hold no sample of the data.",
        "collect",
    )
)
@takes_options(CollectOptions)
def collect(options: CollectOptions) -> None:
    """Collect source statistics."""
    from regtta.commands.collect import collect_statistics
    from regtta.commands.teams import joined
    from regtta.commands.terminal import show

    with joined() as team, show.progress_bar("collecting", shown=team.first) as progress:
        report = collect_statistics(options, progress, team)
    if team.first:
        show.collected(report)


@app.command(
    help=help_with_examples(
        "Adapt a model to unlabelled target data.\n\nWrites its predictions, its new weights, a log of every "
        "step, or all three; --export makes a file to deploy; --checkpoint lets a run that was killed go on. "
        "With --target, scores before and after are printed; only the oracle learns from labels.",
        "adapt",
    )
)
@takes_options(AdaptOptions)
def adapt(options: AdaptOptions) -> None:
    """Adapt a model to target data."""
    from regtta.commands.adapt import adapt_model
    from regtta.commands.teams import joined
    from regtta.commands.terminal import show

    with joined() as team, show.progress_bar("adapting", shown=team.first) as progress:
        report = adapt_model(options, progress, team)
    if team.first:
        show.adapted(report)


@app.command(
    help=help_with_examples(
        "Show what a file says: counts, rank and spectrum of source statistics, or where an exported model comes from.",
        "inspect",
    )
)
def inspect(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Source statistics, or an adapted model: .safetensors, .pt2, .onnx.")
    ],
    as_json: shared.AsJson = False,
) -> None:
    """Show what a file says."""
    from regtta.commands.inspect import StatisticsReport, inspect_file
    from regtta.commands.terminal import show

    report = inspect_file(file)
    if as_json:
        show.json(report.plain())
    elif isinstance(report, StatisticsReport):
        show.inspected(report)
    else:
        show.provenance(report)


@app.command(help=help_with_examples("List the methods; with a name, all that can be set of one.", "methods"))
def methods(
    name: Annotated[str | None, typer.Argument(help="One method.")] = None, as_json: shared.AsJson = False
) -> None:
    """List the methods."""
    from regtta.commands.methods import describe_method, list_methods
    from regtta.commands.terminal import show

    if name is not None:
        report = describe_method(name)
        show.json(report.plain()) if as_json else show.method(report)
        return
    reports = list_methods()
    show.json([report.plain() for report in reports]) if as_json else show.methods(reports)


@app.command(
    help=help_with_examples(
        "Write a report of runs: one HTML page, which needs no network to open.\n\nTakes records of regtta adapt "
        "--record (several go side by side), or the folder of regtta demo or regtta reproduce.",
        "report",
    )
)
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Records or folders.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Page to write, .html.")] = Path("report.html"),
    force: shared.Force = False,
) -> None:
    """Write a report."""
    from regtta.commands.report import make_report
    from regtta.commands.terminal import show

    show.reported(make_report(runs, out, force=force))


app.add_typer(studies.app)
