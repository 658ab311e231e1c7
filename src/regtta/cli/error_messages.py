"""Errors of the command line as one line that names the fix."""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from regtta.cli.rank_info import get_rank_info, is_first_process
from regtta.errors import PeerError, ProcessError, RegttaError
from regtta.optional_imports import missing_extra_message

# Terms of the Python interface and the options that replace them.
_COMMAND_LINE_TERMS = (
    (
        r"(pass download=True|call download_california on that folder); on the command line, --download",
        "pass --download",
    ),
    (r"No folder of data sets was given\. Pass one,", "No folder of data sets was given. Pass --data DIR,"),
    (r"\ballow_mismatch=True", "--allow-mismatch"),
    (r"\bhead=<name>", "--head NAME"),
    (r"\bhead= ", "--head "),
    (r"\binputs=<(key|index|keys or indices|key, index or a list of them)>", "--inputs NAME"),
    (r"\boutput=<key or index>", "--output NAME"),
    (r"\binputs=('[^']*')", r"--inputs \1"),
    (r"\binputs= ", "--inputs "),
    (r"(?<!--set )\bk=\"auto\"", "--set k=auto"),
    (r"(?<!--set )\bk=None\b", "--set k=none"),
    (r"regtta\.collect\(model, loader, methods=\[regtta\.create_method\('(\w+)'\)\]\)", r"regtta collect --method \1"),
    (r"\bregtta\.collect\(model, loader\)(\.save\(path\))?", "regtta collect"),
)


def command_line_message(error: RegttaError) -> str:
    r"""Return the message of ``error`` on one line, with the names of command-line options.

    Example:
        >>> command_line_message(RegttaError("No head. Pass head=<name>;\nlayers here: ['fc']."))
        "No head. Pass --head NAME; layers here: ['fc']."
    """
    text = " ".join(str(error).split())
    for pattern, replacement in _COMMAND_LINE_TERMS:
        text = re.sub(pattern, replacement, text)
    return text


DISTRIBUTED_COMMANDS = ("collect", "adapt")  # commands that several processes can run together
PRINT_GRACE_SECONDS = 5

_UsageError: type[Exception] = typer.BadParameter.__mro__[
    1
]  # click's class; its import path depends on the version of typer


class OneLineErrorGroup(TyperGroup):
    """Group of commands that reports every user error as one line on stderr and exit code 2.

    Under torchrun, the process that raised the error prints it, with its rank.
    """

    def invoke(self, ctx: Any) -> object:  # click's context; its import path depends on the version of typer
        """Run the command and convert user errors to exit code 2."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if is_first_process():
                raise
            raise _silent_exit() from error
        except (RegttaError, ModuleNotFoundError) as error:
            if ctx.params.get("traceback"):
                raise
            message = command_line_message(error) if isinstance(error, RegttaError) else missing_extra_message(error)
            if message is None:
                raise
            if isinstance(error, PeerError):
                raise _silent_exit() from error
            info = get_rank_info()
            typer.echo(f"error: {'' if info is None else f'process {info.rank}: '}{message}", err=True)
            raise typer.Exit(2) from error


def _silent_exit() -> typer.Exit:
    """Return the exit of a process whose error another process prints, after giving that one time to print.

    torchrun terminates all processes as soon as one of them exits.
    """
    time.sleep(PRINT_GRACE_SECONDS)
    return typer.Exit(2)


def reject_multiple_processes(command: str | None) -> None:
    """Raise ProcessError if torchrun runs a command that supports one process only."""
    if get_rank_info() is not None and command not in DISTRIBUTED_COMMANDS:
        if not is_first_process():
            raise PeerError("The first process prints the error.")
        raise ProcessError(f"regtta {command} is for one process. Start it without torchrun.")


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Turn Control-C inside the block into a message and exit code 130, for commands that keep every run."""
    try:
        yield
    except KeyboardInterrupt as error:
        typer.echo("Stopped. All finished runs are kept: run the same command again to resume.", err=True)
        raise typer.Exit(130) from error


class StderrWarningHandler(logging.Handler):
    """Logging handler that prints the library's warnings on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record, from the first process only."""
        if is_first_process():
            typer.echo(f"{record.levelname.lower()}: {record.getMessage()}", err=True)
