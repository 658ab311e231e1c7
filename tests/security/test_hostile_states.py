"""States that no running stream would write are refused before anything is loaded, or can be stepped from."""

import functools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regtta
from helpers.attaching import attach
from regtta.errors import InvalidFileError, MismatchError, RegttaError, StateError
from regtta.persistence.state_files import read_state, write_state
from security.hostile_states import CHANGES, HOSTILE_FIELDS, STREAM, STREAMS, iterate_nodes, make_state, replace_value

HERE = Path(__file__).parent


@functools.cache
def state_of(name):
    return make_state(STREAMS[name])


def assert_same(a, b, path="state"):
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b), path
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), path
        for item, other in zip(a, b, strict=True):
            assert_same(item, other, path)
    else:
        assert a == b, path


def resume_and_step(adapter, state):
    """Load the state and step from it; return False if it is refused."""
    try:
        adapter.load_state_dict(state)
    except RegttaError:
        return False
    for x in STREAM[-2:]:
        assert adapter.adapt(x).predictions.isfinite().all()
    assert adapter.predict(STREAM[-1]).isfinite().all()
    return True


@pytest.mark.parametrize("name", STREAMS)
def test_every_change_to_every_value_is_refused_or_can_be_stepped_from(name):
    state, adapter = state_of(name), STREAMS[name].make()
    for x in STREAM[-4:-2]:  # a refused state must not change what the adapter has learned
        adapter.adapt(x)
    before, tried, refused = adapter.state_dict(), 0, 0
    for path, value in list(iterate_nodes(state)):
        for kind, change in CHANGES.items():
            if change(value) is value:
                continue
            tried += 1
            try:
                taken = resume_and_step(adapter, replace_value(state, path, change))
            except Exception as error:
                raise AssertionError(f"{'/'.join(map(str, path))}: {kind}") from error
            refused += not taken
            if taken:
                adapter.load_state_dict(before)
    assert_same(adapter.state_dict(), before)
    assert tried > 300
    assert refused > 0.8 * tried


@pytest.mark.parametrize("name", STREAMS)
def test_a_refused_state_leaves_the_adapter_exactly_as_it_was(name):
    state, adapter = state_of(name), STREAMS[name].make()
    adapter.adapt(STREAM[-4])
    before = adapter.state_dict()
    for path, value in list(iterate_nodes(state)):
        broken = replace_value(state, path, lambda _: "x")
        if path[0] == "begun" or isinstance(value, str):
            continue
        with pytest.raises(MismatchError):
            adapter.load_state_dict(broken)
        assert_same(adapter.state_dict(), before)


def test_optimizer_moments_of_one_number_crash_nothing():
    """The fused kernel reads as many numbers of the moments as the parameter has; in a process that may crash."""
    script = """
import sys, torch
sys.path[:0] = sys.argv[1:]
from security.hostile_states import STREAM, STREAMS, make_state
from regtta.errors import RegttaError
def shrink(value):
    for key, item in value.items():
        if isinstance(item, dict):
            shrink(item)
        elif isinstance(item, torch.Tensor) and item.ndim:
            value[key] = torch.ones(1)
for name in ("ssa", "ssa, own Adam, fused"):
    state = make_state(STREAMS[name])
    shrink(state["learner"]["optimizer"])
    adapter = STREAMS[name].make()
    try:
        adapter.load_state_dict(state)
    except RegttaError as error:
        print("refused:", str(error).replace("\\n", " "))
    else:
        for x in STREAM:
            adapter.adapt(x)
        print("stepped")
"""
    command = [sys.executable, "-c", script, str(HERE.parent.parent / "src"), str(HERE.parent)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    assert all("exp_avg" in line and "shape" in line for line in lines)


@pytest.mark.parametrize(("name", "field", "value"), HOSTILE_FIELDS)
def test_the_error_names_the_field(name, field, value):
    state, keys = state_of(name), field.split("/")
    path = tuple(int(key) if key.isdigit() and "param_groups" in keys[:-1] else key for key in keys)
    adapter = STREAMS[name].make()
    with pytest.raises(StateError, match="The state cannot be resumed: expected ") as caught:
        adapter.load_state_dict(replace_value(state, path, lambda _: value))
    message = str(caught.value)
    for key in keys if field != "good" else ("good",):
        assert key in message
    assert "Restore the file from a backup" in message


@pytest.mark.parametrize("field", ["lr", "betas", "eps", "weight_decay", "params"])
def test_an_option_of_the_optimizer_that_is_missing(field):
    name = "ssa, own Adam, fused"
    state = state_of(name)
    group = dict(state["learner"]["optimizer"]["param_groups"][0])
    del group[field]
    broken = replace_value(state, ("learner", "optimizer", "param_groups"), lambda _: [group])
    with pytest.raises(StateError, match=f"param_groups/0/{field}"):
        STREAMS[name].make().load_state_dict(broken)


def test_options_that_torch_has_added_may_be_missing():
    name = "ssa, own Adam, fused"
    state = state_of(name)
    group = {key: value for key, value in state["learner"]["optimizer"]["param_groups"][0].items() if key != "foreach"}
    older = replace_value(state, ("learner", "optimizer", "param_groups"), lambda _: [group])
    first, second = STREAMS[name].make(), STREAMS[name].make()
    first.load_state_dict(older)
    second.load_state_dict(state)
    for x in STREAM[3:6]:
        assert torch.equal(first.adapt(x).predictions, second.adapt(x).predictions)


# --- through a file --------------------------------------------------------------------------------

SETTINGS = settings(
    max_examples=120,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("name", STREAMS)
def test_changed_files_with_a_right_digest(name, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a crash of the machine is not what is tested here
    state, path = state_of(name), tmp_path / "stream.safetensors"
    places = [where for where, _ in iterate_nodes(state)]
    adapter = STREAMS[name].make()

    @SETTINGS
    @given(st.lists(st.tuples(st.sampled_from(places), st.sampled_from(sorted(CHANGES))), min_size=1, max_size=3))
    def check(changes):
        hostile = state
        for where, kind in changes:
            try:
                hostile = replace_value(hostile, where, CHANGES[kind])
            except (KeyError, IndexError, TypeError, RuntimeError):
                continue  # an earlier change has removed the place
        write_state(path, {"batches": 3, "adapter": hostile}, overwrite=True)
        checkpoint = attach(regtta.Checkpoint(path), adapter)
        try:
            checkpoint.resume()
        except RegttaError:
            return
        assert checkpoint.batches == 3
        assert all(adapter.adapt(x).predictions.isfinite().all() for x in STREAM[-2:])

    check()


def make_monitor():
    adapter = STREAMS["ssa"].make()
    return attach(regtta.Monitor(alarms=(*regtta.monitoring.DEFAULT_ALARMS, regtta.monitoring.DriftAlarm())), adapter)


@pytest.fixture(scope="module")
def monitored_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("monitored") / "stream.safetensors"
    monitor = make_monitor()
    checkpoint = attach(regtta.Checkpoint(path), monitor.adapter)
    for x in STREAM[:4]:
        checkpoint.adapter.adapt(x)
    checkpoint.save()
    return path


def test_the_state_of_a_monitor_is_checked_as_well(monitored_file, tmp_path):
    state, path = read_state(monitored_file), tmp_path / "hostile.safetensors"
    monitor = make_monitor()
    checkpoint = attach(regtta.Checkpoint(path), monitor.adapter)
    before = monitor.state_dict(), monitor.adapter.state_dict()
    tried = 0
    for where, value in list(iterate_nodes(state["monitor"], ("monitor",))):
        for change in ("left out", "a text", "-1", "10^400", "shape (1,)", "in float16", "all NaN"):
            if CHANGES[change](value) is value:
                continue
            hostile = replace_value(state, where, CHANGES[change])
            try:
                checkpoint._load(hostile)
            except RegttaError:
                assert_same((monitor.state_dict(), monitor.adapter.state_dict()), before)
                tried += 1
                continue
            for x in STREAM[-2:]:
                assert monitor.adapter.adapt(x).predictions.isfinite().all()
            assert all(math.isfinite(number) for number in monitor.signals.scalars().values())
            monitor.load_state_dict(before[0])
            monitor.adapter.load_state_dict(before[1])
    assert tried > 200


def test_the_monitor_is_restored_where_the_adapter_refuses_the_state(monitored_file, tmp_path):
    state, path = read_state(monitored_file), tmp_path / "hostile.safetensors"
    state["adapter"]["learner"]["tensors"]["1.weight"] = torch.ones(1)
    write_state(path, state)
    monitor = make_monitor()
    monitor.adapter.adapt(STREAM[-1])
    before = monitor.state_dict(), monitor.adapter.state_dict()
    with pytest.raises(
        InvalidFileError, match=r"hostile.safetensors holds no state.*learner/tensors/1\.weight.*remove"
    ):
        attach(regtta.Checkpoint(path), monitor.adapter).resume()
    assert_same((monitor.state_dict(), monitor.adapter.state_dict()), before)
