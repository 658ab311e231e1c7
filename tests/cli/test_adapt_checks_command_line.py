import shlex
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from regtta.cli import adapt, views
from regtta.cli.adapt import AdaptOptions
from regtta.cli.adapt_checks import format_command_line
from regtta.cli.adapt_options import PrecisionName, Protocol, ServedModel
from regtta.cli.app import app

PLAIN = AdaptOptions(model="mymodel:make", data="target.csv", record=Path("run.json"))
OTHER = {
    "model": "other:build",
    "weights": Path("w.safetensors"),
    "stats": Path("s.safetensors"),
    "method": "tent+0.5*ssa",
    "settings": ("k=3", "lr=1e-4"),
    "protocol": Protocol.offline,
    "head": "head.fc",
    "device": "cuda:1",
    "shuffle_seed": 0,
    "predictions": Path("p.csv"),
    "adapted_weights": Path("a.safetensors"),
    "diagnostics": Path("d.jsonl"),
    "record": Path("with space.json"),
    "export": Path("m.onnx"),
    "checkpoint": Path("c.safetensors"),
    "checkpoint_every": 7,
    "resume": True,
    "monitor": Path("s.jsonl"),
    "prometheus": Path("s.prom"),
    "tensorboard": Path("runs"),
    "safe": True,
    "serve": ServedModel.source,
    "precision": PrecisionName.tf32,
    "fast": True,
    "allow_mismatch": True,
    "force": True,
    "data": "a dir/it's.csv",
    "columns": ("age", "room count"),
    "target": "y,z",
    "inputs": "image",
    "output": "logits",
    "batch_size": 7,
    "image_size": 32,
    "image_mean": (0.5, 1e-7, 0.1),
    "image_std": (1.0, 2.0, 0.25),
    "labels": Path("all labels.csv"),
}


@pytest.fixture
def parsed(monkeypatch):
    """Return a function that parses a command line and returns its options without adapting."""
    seen = []
    monkeypatch.setattr(adapt, "adapt_model", lambda options, *_: seen.append(options))
    monkeypatch.setattr(views, "print_adapt_report", lambda report: None)

    def parse(line):
        program, *words = shlex.split(line)
        assert program == "regtta"
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return seen.pop()

    return parse


def test_defaults_are_omitted():
    assert format_command_line(PLAIN) == "regtta adapt --model mymodel:make --data target.csv --record run.json"


def test_every_field_is_covered_with_another_value():
    assert OTHER.keys() == {item.name for item in fields(AdaptOptions)}
    for item in fields(AdaptOptions):
        assert item.default is MISSING or OTHER[item.name] != item.default


@pytest.mark.parametrize("name", OTHER)
def test_every_option_other_than_its_default_round_trips(parsed, name):
    options = replace(PLAIN, **{name: OTHER[name]})
    assert format_command_line(options) != format_command_line(PLAIN)
    assert parsed(format_command_line(options)) == options


def test_all_options_together_round_trip(parsed):
    options = AdaptOptions(**OTHER)
    assert parsed(format_command_line(options)) == options


# Names with blanks, quotes and dashes.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00,", exclude_categories=("Cc", "Cs")), min_size=1)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES, NAMES, st.lists(NAMES.filter(lambda name: name == name.strip()), max_size=3), st.integers(1, 10**6))
def test_names_survive_shell_quoting(parsed, model, target, columns, size):
    options = replace(
        PLAIN, model=model, columns=tuple(columns), target=target, batch_size=size, settings=(f"k={target}",)
    )
    assert parsed(format_command_line(options)) == options
