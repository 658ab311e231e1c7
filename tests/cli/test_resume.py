"""``regtta adapt --checkpoint``: a killed and resumed command writes the files of an uninterrupted one."""

import dataclasses
import errno
import json
import os
import signal
from pathlib import Path

import pandas as pd
import pytest
import torch

from cli.test_adapt import ADAPT, options
from helpers.preloaded_python import run_python
from regtta.cli.adapt import adapt_model
from regtta.cli.adapt_options import Protocol
from regtta.cli.predictions import Tally
from regtta.cli.resume import StepHistory
from regtta.errors import ExistingFileError, InvalidFileError, MismatchError, OptionError
from regtta.persistence import atomic_files
from regtta.persistence.export import read_provenance
from regtta.persistence.safetensors_files import read_safetensors
from regtta.persistence.state_files import read_state, write_state
from regtta.types import Diagnostics, Step, Verdict

CHECKPOINT = Path("c.safetensors")


class Killed(BaseException):
    """Stand-in for a kill: an exception that no handler catches. A real kill is tested below."""


def with_checkpoint(every=2, **others):
    return {"checkpoint": CHECKPOINT, "checkpoint_every": every, "resume": True} | others


def stop_after(monkeypatch, batches):
    """Interrupt the command after ``batches`` batches of this run."""
    stepped, seen = Tally.stepped, []

    def count(self, step):
        stepped(self, step)
        seen.append(step)
        if len(seen) == batches:
            raise Killed

    monkeypatch.setattr(Tally, "stepped", count)


def outputs(name, suffix=".csv", diagnostics=True):
    files = {"predictions": Path(f"{name}{suffix}"), "adapted_weights": Path(f"{name}.safetensors")}
    return files | ({"diagnostics": Path(f"{name}.jsonl")} if diagnostics else {})


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("case", ["plain", "shuffled", "unlabelled", "loader", "oracle"])
def test_resumed_output_is_byte_for_byte_that_of_one_never_stopped(workspace, statistics, monkeypatch, case, suffix):
    asked = {
        "plain": lambda **o: options(target="y", **o),
        "shuffled": lambda **o: options(target="y", shuffle_seed=3, **o),
        "unlabelled": lambda **o: options("target.npz", **o),
        "loader": lambda **o: options("mymodel:generator", target="1", **o),
        "oracle": lambda **o: options(target="y", **o | {"method": "oracle", "settings": ("lr=0.05",)}),
    }[case]
    whole = adapt_model(asked(**outputs("whole", suffix)))
    for stop in (1, 4, 3, 2):  # of 5 batches; resumed runs count the ones out of the file as well
        with monkeypatch.context() as patch:
            stop_after(patch, stop)
            with pytest.raises(Killed):
                adapt_model(asked(**outputs("parts", suffix), **with_checkpoint()))
        assert not Path(f"parts{suffix}").exists()
    assert read_state(CHECKPOINT)["batches"] == 2
    resumed = adapt_model(asked(**outputs("parts", suffix), **with_checkpoint()))
    for name in (suffix, ".jsonl"):
        assert Path(f"parts{name}").read_bytes() == Path(f"whole{name}").read_bytes()
    weights, _ = read_safetensors("parts.safetensors")
    expected, _ = read_safetensors("whole.safetensors")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert dataclasses.replace(resumed, written=()) == dataclasses.replace(whole, written=())
    assert read_provenance("parts.safetensors").batches == 5


def test_a_stream_resumes_on_additional_data(workspace, statistics):
    table = pd.read_csv("target.csv")
    table.to_csv("all.csv", index=False)
    adapt_model(options("all.csv", target="y", predictions=Path("whole.csv")))
    table[:48].to_csv("all.csv", index=False)
    adapt_model(options("all.csv", target="y", **with_checkpoint(50)))
    assert read_state(CHECKPOINT)["batches"] == 3
    table.to_csv("all.csv", index=False)
    adapt_model(options("all.csv", target="y", force=True, **with_checkpoint(50)))
    assert Path("p.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert read_state(CHECKPOINT)["batches"] == 5


def test_a_real_kill(workspace, statistics):
    """Run the command in a process that kills itself after the fourth batch."""
    (workspace / "deadly.py").write_text(
        "import os, signal, mymodel\n"
        "def load():\n"
        "    for index, batch in enumerate(mymodel.batches):\n"
        "        if index == 4 and os.environ.get('DIE'):\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        yield batch\n"
    )
    line = [word for word in ADAPT if word not in ("--batch-size", "16")]
    line += ["--data", "deadly:load", "--target", "1", "--checkpoint", "c.safetensors", "--checkpoint-every", "1"]
    line += ["--resume", "--predictions", "p.csv"]
    killed, resumed = (
        run_python(["-m", "regtta", *line], folder=workspace, environment=os.environ | more)
        for more in ({"DIE": "1"}, {})
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert resumed.returncode == 0, resumed.stderr
    adapt_model(options("deadly:load", target="1", predictions=Path("whole.csv")))
    assert Path("p.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert not list(workspace.glob(".c.safetensors*"))


def test_a_disk_that_fails_costs_the_checkpoint_and_nothing_else(workspace, statistics, monkeypatch, regtta):
    replace = type(Path()).replace

    def full(self, target):
        if Path(target).name == CHECKPOINT.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(self, target)

    line = [*ADAPT, "--data", "target.csv", "--target", "y", "--predictions", "p.csv"]
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files.Path, "replace", full)
        done = regtta(*line, "--checkpoint", CHECKPOINT, "--checkpoint-every", "1")
    assert done.exit_code == 0
    assert done.stderr.count("error: Could not write c.safetensors: No space left on device. Free space there") == 1
    adapt_model(options(target="y", predictions=Path("whole.csv")))
    assert Path("p.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert not CHECKPOINT.exists()


# --- rejected options ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"resume": True}, "--resume requires --checkpoint"),
        ({"checkpoint_every": 3}, "--checkpoint-every requires --checkpoint"),
        (with_checkpoint(protocol=Protocol.offline), "--checkpoint works only with --protocol online"),
        (with_checkpoint(record=Path("run.json")), "--record needs an uninterrupted run"),
        (with_checkpoint(checkpoint=Path("c.pt")), "Expected --checkpoint to end in .safetensors"),
        (with_checkpoint(checkpoint=Path("stats.safetensors")), "also an input"),
        (with_checkpoint(adapted_weights=CHECKPOINT), "also an input"),
    ],
)
def test_contradicting_options_are_rejected(workspace, statistics, others, words):
    with pytest.raises(OptionError, match=words):
        adapt_model(options(target="y", **others))


def test_an_existing_checkpoint_is_not_overwritten(workspace, statistics):
    adapt_model(options(target="y", **with_checkpoint(1)))
    with pytest.raises(ExistingFileError, match="--force"):
        adapt_model(options(target="y", predictions=Path("q.csv"), checkpoint=CHECKPOINT))
    adapt_model(options(target="y", checkpoint=CHECKPOINT, force=True, settings=("k=2",)))
    assert read_state(CHECKPOINT)["adapter"]["method"]["k"] == 2


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"shuffle_seed": 1}, "another --shuffle-seed"),
        ({"target": None}, "another --target"),
        ({"data": "target.csv"}, "another --data"),
        ({"settings": ("k=2",)}, "method of the state"),
    ],
)
def test_a_checkpoint_of_another_stream_is_rejected(workspace, statistics, others, words):
    asked = {"data": "target.npz", "target": "y"}
    adapt_model(options(**asked, **with_checkpoint(1)))
    with pytest.raises(MismatchError, match=words):
        adapt_model(options(**asked | {"predictions": Path("q.csv")} | with_checkpoint(1) | others))


def test_changed_data_is_rejected(workspace, statistics):
    adapt_model(options(target="y", **with_checkpoint(1)))
    table = pd.read_csv("target.csv")
    for rows, words in ((60, "Batch 3 has 12 rows, but the checkpoint"), (32, "The data has 2 batches, but")):
        table[:rows].to_csv("target.csv", index=False)
        with pytest.raises(MismatchError, match=words):
            adapt_model(options(target="y", predictions=Path("q.csv"), **with_checkpoint(1)))
        assert not Path("q.csv").exists()


def test_a_damaged_checkpoint_is_rejected(workspace, statistics):
    adapt_model(options(target="y", **with_checkpoint(1)))
    state = read_state(CHECKPOINT)
    state["companion"].pop("numbers")
    write_state(CHECKPOINT, state, overwrite=True)
    with pytest.raises(InvalidFileError, match="holds no state of this stream.*remove c.safetensors"):
        adapt_model(options(target="y", predictions=Path("q.csv"), **with_checkpoint(1)))


# --- the history ----------------------------------------------------------------------------------


def test_a_history_round_trips_exactly(tmp_path):
    numbers = [(None, None, 0.0), (float("nan"), float("inf"), 0.5), (-0.0, 1e-300, 1.0)]
    verdicts = [Verdict(learned=False, reason="no shift", returned="source"), Verdict(learned=True)]
    history = StepHistory({"--data": "a"})
    for index, (loss, norm, moved) in enumerate(numbers):
        diagnostics = Diagnostics(loss, norm, moved, verdicts[index % 2])
        history.on_step(None, Step(index, torch.randn(index, 2, dtype=torch.float64), diagnostics))
    write_state(tmp_path / "h", history.state_dict())
    again = StepHistory({"--data": "a"})
    again.load_state_dict(read_state(tmp_path / "h"))
    assert [repr(step) for step in again.steps] == [repr(step) for step in history.steps]
    assert all(torch.equal(a.predictions, b.predictions) for a, b in zip(again.steps, history.steps, strict=True))
    empty = StepHistory({})
    empty.load_state_dict(StepHistory({}).state_dict())
    assert empty.steps == []
    assert json.dumps(history.about) == '{"--data": "a"}'
