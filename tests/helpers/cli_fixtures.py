from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.cli_workspace import MODEL, forget_module, make_workspace


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a user's folder and make it the working directory."""
    monkeypatch.chdir(make_workspace(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    forget_module()
    yield tmp_path
    forget_module()


@pytest.fixture
def regtta() -> Callable[..., Any]:
    """Return a function that runs a command line in this process."""
    from regtta.cli.app import app

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def statistics(workspace: Path, regtta: Callable[..., Any]) -> Path:
    """Collect the statistics of the workspace's model with the command."""
    out = workspace / "stats.safetensors"
    result = regtta("collect", *MODEL, "--data", "source.csv", "--target", "y", "--out", out.name)
    assert result.exit_code == 0, result.stderr
    return out


@pytest.fixture
def refusal(regtta: Callable[..., Any]) -> Callable[..., str]:
    """Return a function that runs a command line that must fail, and returns its one-line error."""

    def run(*arguments: str) -> str:
        result = regtta(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr

    return run
