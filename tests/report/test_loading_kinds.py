"""Kinds of runs that installed packages add through the entry-point group ``regtta.reports``."""

import importlib.metadata
import logging
from importlib.metadata import EntryPoint

import pytest

from regtta.cli.report import make_report
from regtta.errors import InvalidFileError, MissingFileError, OptionError
from regtta.report import run_kinds
from regtta.report.content import Page
from regtta.report.run_kinds import ADAPT_RUN, RunKind, build_page, detect_run_kind

GROUP = "regtta.reports"


def make_page(paths, command):
    return Page(
        title="Runs of mine",
        headline=f"{len(paths)} runs with {sum(len(path.read_text()) for path in paths)} characters",
        tone="unknown",
        summary=(),
        facts=(),
        warnings=(),
        sections=(),
        command=command,
    )


def fail(paths, command):
    raise KeyError("speed")


MINE = RunKind("mine", "a .mine file of regtta mine", lambda path: path.suffix == ".mine", make_page)
DAMAGED = RunKind("damaged", "a .dmg file of regtta mine", lambda path: path.suffix == ".dmg", fail)
NO_KIND = {"name": "mine"}


@pytest.fixture
def install(monkeypatch):
    """Return a function that pretends that packages with these entry points are installed."""
    found = importlib.metadata.entry_points

    def pretend(*names):
        made = [EntryPoint("x", name if ":" in name else f"{__name__}:{name}", GROUP) for name in names]
        monkeypatch.setattr(run_kinds, "entry_points", lambda **o: made if o == {"group": GROUP} else found(**o))

    return pretend


@pytest.fixture
def run(tmp_path):
    (tmp_path / "first.mine").write_text("12345")
    return tmp_path / "first.mine"


def test_a_kind_of_a_package_is_detected_and_rendered(install, run):
    install("MINE")
    assert detect_run_kind(run) == MINE
    other = run.with_name("second.mine")
    other.write_text("123")
    page = build_page([run, other], "regtta report here")
    assert (page.title, page.headline) == ("Runs of mine", "2 runs with 8 characters")
    assert page.command == "regtta report here"


def test_the_command_writes_its_page(install, run, tmp_path):
    install("MINE")
    written = make_report([run], tmp_path / "page.html")
    assert written.headline == "1 runs with 5 characters"
    text = written.path.read_text()
    assert "Runs of mine" in text
    assert "first.mine" in text  # in the command that writes it again


def test_without_the_package_it_is_no_run(install, run):
    install()
    with pytest.raises(InvalidFileError, match=f"first.mine is not a recorded run. Expected {ADAPT_RUN.output}.$"):
        detect_run_kind(run)


def test_errors_list_the_kinds_of_packages(install, tmp_path):
    install("MINE", "DAMAGED")
    expected = f"{ADAPT_RUN.output}, or {MINE.output}, or {DAMAGED.output}"
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InvalidFileError, match=expected):
        detect_run_kind(tmp_path / "notes.txt")
    with pytest.raises(MissingFileError, match=expected):
        detect_run_kind(tmp_path / "gone.mine")


def test_records_of_the_library_are_not_taken_over(install, tmp_path, monkeypatch):
    everything = RunKind("all", "anything", lambda path: True, make_page)
    monkeypatch.setitem(globals(), "MINE", everything)
    install("MINE")
    (tmp_path / "run.json").write_text("{}")
    assert detect_run_kind(tmp_path / "run.json") is ADAPT_RUN


def test_kinds_cannot_be_mixed(install, run, tmp_path):
    install("MINE")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(OptionError, match=r"first\.mine \(mine\), .*run\.json \(adapt\)"):
        build_page([run, tmp_path / "run.json"], "x")


def test_an_error_in_the_page_of_a_package_names_the_file(install, tmp_path):
    install("DAMAGED")
    (tmp_path / "run.dmg").write_text("")
    with pytest.raises(InvalidFileError, match=r"run\.dmg is damaged .*KeyError: 'speed'"):
        build_page([tmp_path / "run.dmg"], "x")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("not_installed.pages:KIND", "ModuleNotFoundError: No module named 'not_installed'"),
        ("GONE", "AttributeError"),
        ("NO_KIND", "TypeError: expected a RunKind"),
    ],
)
def test_kinds_that_cannot_be_loaded_are_reported_and_skipped(install, run, entry, reason, caplog):
    install(entry, "MINE")
    with caplog.at_level(logging.WARNING, "regtta"):
        assert detect_run_kind(run) == MINE
    (message,) = caplog.messages
    assert f"cannot be loaded ({reason}" in message
    assert entry in message


def test_the_installed_package_registers_its_kinds():
    names = {entry.load().name for entry in importlib.metadata.entry_points(group=GROUP)}
    assert {"demo", "reproduce"} <= names
