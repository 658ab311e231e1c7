"""Commands of installed packages: typer applications in the entry-point group ``regtta.commands``."""

import importlib.metadata
import logging
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

import regtta_bench.cli.commands

GROUP = "regtta.commands"

apart = typer.Typer()


@apart.command("weigh", help="Weigh a thing.")
def weigh(thing: str) -> None:
    typer.echo(f"{thing} is heavy")


@apart.command("count")
def count() -> None:
    raise RuntimeError("miscounted")


named = typer.Typer(name="tools", help="Tools of a package.")


@named.command("saw")
def saw() -> None:
    typer.echo("sawed")


@named.command("drill")
def drill() -> None:
    typer.echo("drilled")


not_an_application = 3


class Explodes:
    """Stand-in for an entry point whose package raises when it is imported."""

    value = "explodes.cli:app"

    def load(self):
        raise OSError("no such library")


@pytest.fixture
def command_line(monkeypatch):
    """Return a function that imports the application anew with entry points, and runs it."""
    found = importlib.metadata.entry_points

    def run(entries, *arguments):
        made = [EntryPoint("x", e, GROUP) if isinstance(e, str) else e for e in entries]
        monkeypatch.setattr(
            importlib.metadata, "entry_points", lambda **o: made if o == {"group": GROUP} else found(**o)
        )
        monkeypatch.delitem(sys.modules, "regtta.cli.app", raising=False)
        from regtta.cli.app import app

        return CliRunner().invoke(app, list(arguments))

    before = sys.modules.get("regtta.cli.app")
    yield run
    if before is not None:
        monkeypatch.setitem(sys.modules, "regtta.cli.app", before)


def commands(text):
    """Return the names at the beginning of the rows of the help."""
    rows = [line.strip("│ ").split() for line in text.splitlines() if line.startswith("│")]
    return {row[0] for row in rows if row}


OWN = {"collect", "check", "adapt", "inspect", "methods", "report"}
BENCH = {"reproduce", "stress", "label-shift", "demo"}


def test_without_packages_there_are_the_commands_of_the_library(command_line):
    shown = command_line([], "--help")
    assert shown.exit_code == 0
    assert commands(shown.stdout) >= OWN
    assert not (BENCH | {"weigh", "tools"}) & commands(shown.stdout)


def test_commands_of_a_package_are_listed_and_run(command_line):
    entries = [f"{__name__}:apart", f"{__name__}:named"]
    shown = command_line(entries, "--help")
    assert OWN | {"weigh", "count", "tools"} <= commands(shown.stdout)
    assert "Weigh a thing." in shown.stdout
    assert command_line(entries, "weigh", "lead").stdout == "lead is heavy\n"
    assert command_line(entries, "tools", "saw").stdout == "sawed\n"
    assert command_line(entries, "weigh").exit_code == 2
    assert isinstance(command_line(entries, "count").exception, RuntimeError)


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        (Explodes(), "explodes.cli:app", "OSError: no such library"),
        ("not_installed.cli:app", "not_installed.cli:app", "ModuleNotFoundError: No module named 'not_installed'"),
        (f"{__name__}:gone", f"{__name__}:gone", "AttributeError"),
        (f"{__name__}:not_an_application", f"{__name__}:not_an_application", "TypeError: expected a typer.Typer"),
        (f"{__name__}:weigh", f"{__name__}:weigh", "TypeError: expected a typer.Typer"),
    ],
    ids=["import fails", "no module", "no attribute", "a number", "a function"],
)
def test_commands_that_cannot_be_loaded_are_reported_and_skipped(command_line, caplog, entry, value, reason):
    with caplog.at_level(logging.WARNING, "regtta"):
        shown = command_line([entry, f"{__name__}:apart"], "--help")
    assert shown.exit_code == 0
    assert OWN | {"weigh"} <= commands(shown.stdout)
    (message,) = caplog.messages
    assert message.startswith(f"The commands of {value} cannot be loaded ({reason}")


def test_a_package_that_cannot_be_loaded_does_not_break_other_commands(command_line):
    assert command_line([Explodes()], "methods", "--json").exit_code == 0


def test_the_experiments_are_an_application_in_this_group(command_line):
    shown = command_line(["regtta_bench.cli.commands:app"], "--help")
    assert commands(shown.stdout) >= OWN | BENCH
    for name in BENCH:
        assert command_line(["regtta_bench.cli.commands:app"], name, "--help").exit_code == 0


def test_the_installed_package_registers_the_experiments():
    loaded = [entry.load() for entry in importlib.metadata.entry_points(group=GROUP)]
    assert regtta_bench.cli.commands.app in loaded
