"""How errors and warnings reach the user of the command line."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from regtta.commands.terminal.wording import missing_extra, one_line
from regtta.errors import RegttaError


class OneLineErrors(TyperGroup):
    """A group of commands in which every mistake of the user's is one line on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> object:  # click's context, which lies elsewhere from typer to typer
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (RegttaError, ModuleNotFoundError) as error:
            if ctx.params.get("traceback"):
                raise
            complaint = one_line(error) if isinstance(error, RegttaError) else missing_extra(error)
            if complaint is None:
                raise
            typer.echo(f"error: {complaint}", err=True)
            raise typer.Exit(2) from error


@contextmanager
def stoppable() -> Iterator[None]:
    """Control-C ends the block with a line that says that nothing is lost, for commands that keep every run."""
    try:
        yield
    except KeyboardInterrupt as error:
        typer.echo("Stopped. All runs so far are kept: the same command goes on where it was.", err=True)
        raise typer.Exit(130) from error


class EchoWarnings(logging.Handler):
    """Shows what the library logs on stderr, where a user of the command line sees it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        typer.echo(f"{record.levelname.lower()}: {record.getMessage()}", err=True)
