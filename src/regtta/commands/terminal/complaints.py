"""How errors and warnings reach the user of the command line."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from regtta.commands.terminal.wording import missing_extra, one_line
from regtta.commands.torchrun import is_first, place
from regtta.errors import PeerError, ProcessError, RegttaError

TOGETHER = ("collect", "adapt")  # commands that several processes can run as one
SECONDS_TO_SPEAK = 5

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # click's, which lies elsewhere from typer to typer


class OneLineErrors(TyperGroup):
    """A group of commands in which every mistake of the user's is one line on stderr and exit code 2.

    Of several processes the one that has the error tells it, and says which it is.
    """

    def invoke(self, ctx: Any) -> object:  # click's context, which lies elsewhere from typer to typer
        """Run the command."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if is_first():
                raise
            raise _silent_exit() from error
        except (RegttaError, ModuleNotFoundError) as error:
            if ctx.params.get("traceback"):
                raise
            complaint = one_line(error) if isinstance(error, RegttaError) else missing_extra(error)
            if complaint is None:
                raise
            if isinstance(error, PeerError):
                raise _silent_exit() from error
            here = place()
            typer.echo(f"error: {'' if here is None else f'process {here.rank}: '}{complaint}", err=True)
            raise typer.Exit(2) from error


def _silent_exit() -> typer.Exit:
    """The end of a process that leaves it to another to say why, once that one has had the time to.

    torchrun ends all processes as soon as one of them has ended.
    """
    time.sleep(SECONDS_TO_SPEAK)
    return typer.Exit(2)


def refuse_several(command: str | None) -> None:
    """Raise where torchrun has started several processes for a command that is for one."""
    if place() is not None and command not in TOGETHER:
        if not is_first():
            raise PeerError("The first process says why.")
        raise ProcessError(f"regtta {command} is for one process. Start it without torchrun.")


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
        """Print one record; where there are several processes, the first speaks for all."""
        if is_first():
            typer.echo(f"{record.levelname.lower()}: {record.getMessage()}", err=True)
