from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from regtta.cli.shared_options import TextParser, split_integers
from regtta.cli.typer_signature import takes_options
from regtta.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class Options:
    files: Annotated[tuple[Path, ...], typer.Argument(metavar="FILE...")] = ()
    name: Annotated[str, typer.Option(help="Required.")]
    settings: Annotated[tuple[str, ...], typer.Option("--set", help="Repeatable.")] = ()
    sizes: Annotated[tuple[int, ...], typer.Option(help="One text."), TextParser(split_integers)] = ()
    force: Annotated[bool, typer.Option("--force")] = False


@pytest.fixture
def run():
    app = typer.Typer(pretty_exceptions_enable=False)
    seen = []

    @app.command()
    @takes_options(Options)
    def command(options: Options, *, listed: Annotated[bool, typer.Option("--list")] = False) -> None:
        seen.append((options, listed))

    def parse(*words):
        result = CliRunner().invoke(app, words)
        return seen.pop() if seen else result

    return parse


def test_defaults_are_those_of_the_dataclass(run):
    assert run("--name", "a") == (Options(name="a"), False)


def test_every_kind_of_field_is_parsed(run):
    words = ["x", "y", "--name", "a", "--set", "k=1", "--set", "l=2,3", "--sizes", "8, 1,8", "--force", "--list"]
    expected = Options(files=(Path("x"), Path("y")), name="a", settings=("k=1", "l=2,3"), sizes=(8, 1), force=True)
    assert run(*words) == (expected, True)


def test_a_field_without_default_is_required(run):
    result = run("--force")
    assert result.exit_code == 2
    assert "--name" in result.output


def test_errors_of_a_parser_are_raised_by_the_command(run):
    assert isinstance(run("--name", "a", "--sizes", "one").exception, OptionError)


def test_the_help_has_the_functions_own_parameters_first_and_the_fields_in_order(run):
    shown = run("--help").stdout
    positions = [shown.index(option) for option in ("--list", "--name", "--set", "--sizes", "--force")]
    assert positions == sorted(positions)
