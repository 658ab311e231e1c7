"""The installed command, run in a process of its own."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import regtta
from helpers.cli_workspace import MODEL, make_workspace
from regtta.cli import main

PROGRAM = str(Path(sys.executable).parent / "regtta")


def run(*command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", code)


HEAVY = """
import sys
sys.argv = ["regtta", *{arguments}]
from regtta.cli import main
try:
    main()
except SystemExit as end:
    heavy = {{"torch", "pandas", "numpy", "pyarrow", "sklearn", "matplotlib"}} & set(sys.modules)
    print("exit", end.code, "loaded", sorted(heavy))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["adapt", "--help"], ["collect"]])
def test_help_and_usage_load_nothing_heavy(arguments):
    code = 2 if arguments == ["collect"] else 0
    assert python(HEAVY.format(arguments=arguments)).stdout.splitlines()[-1] == f"exit {code} loaded []"


def test_help_is_quick():
    began = time.perf_counter()
    shown = run(PROGRAM, "--help")
    took = time.perf_counter() - began
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in ("collect", "adapt", "inspect", "methods", "demo"))
    assert took < 3  # torch alone takes longer on a busy machine


def test_the_module_and_the_command_are_equivalent():
    for command in ([PROGRAM], [sys.executable, "-m", "regtta"]):
        shown = run(*command, "--version")
        assert (shown.returncode, shown.stdout) == (0, f"regtta {regtta.__version__}\n")
    assert "Usage: regtta" in run(sys.executable, "-m", "regtta", "--help").stdout


def test_collect_and_adapt_in_the_users_folder(tmp_path: Path):
    make_workspace(tmp_path)
    collected = run(
        PROGRAM, "collect", *MODEL, "--data", "source.csv", "--target", "y", "--out", "s.safetensors",
        folder=tmp_path,
    )  # fmt: skip
    assert (collected.returncode, collected.stderr) == (0, "")
    adapted = run(
        PROGRAM, "adapt", *MODEL, "--stats", "s.safetensors", "--set", "k=auto", "--data", "target.csv",
        "--target", "y", "--predictions", "p.csv", folder=tmp_path,
    )  # fmt: skip
    assert (adapted.returncode, adapted.stderr) == (0, "")
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 71


def test_a_users_mistake_is_one_line_and_no_traceback(tmp_path: Path):
    make_workspace(tmp_path)
    failed = run(
        PROGRAM, "collect", "--model", "mymodel:fails", "--data", "source.csv", "--out", "s.safetensors",
        folder=tmp_path,
    )  # fmt: skip
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert failed.stderr.count("\n") == 1
    assert failed.stderr.startswith("error: --model mymodel:fails raised: ValueError: no weights to be found")


def test_without_typer_the_error_names_the_extra():
    failed = python("import sys; sys.modules['typer'] = None; from regtta.cli import main; main()")
    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert 'typer is not installed. Install what this command needs: pip install "regtta[cli]"' in failed.stderr


@pytest.mark.parametrize("missing", ["typer", "regtta.cli.error_messages"])
def test_only_missing_optional_packages_are_explained(missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "regtta.cli.app", raising=False)
    with pytest.raises(SystemExit if missing == "typer" else ModuleNotFoundError):
        main()
    assert ("pip install" in capsys.readouterr().err) == (missing == "typer")


def test_main_runs_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regtta", "--version"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert capsys.readouterr().out == f"regtta {regtta.__version__}\n"


def test_an_ascii_terminal_gets_replacement_characters(tmp_path: Path):
    shown = run(
        sys.executable, "-c",
        "import os, sys; os.execve(sys.argv[1], sys.argv[1:], {**os.environ, 'PYTHONIOENCODING': 'ascii'})",
        PROGRAM, "methods", "ssa",
    )  # fmt: skip
    assert shown.returncode == 0
    assert "learning rate" in shown.stdout


def test_a_run_can_be_recorded_without_the_packages_of_a_report():
    blocked = "import sys; sys.modules.update(dict.fromkeys(('matplotlib', 'jinja2', 'PIL')))"
    assert python(f"{blocked}; import regtta.report.recorder").stderr == ""
