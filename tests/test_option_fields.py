"""Every field of every options class rejects values of a wrong type."""

import inspect
import math
import types
from typing import Literal, Union, get_args, get_origin

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.attaching import attach
from regtta import guards
from regtta import monitoring as monitor
from regtta.errors import OptionError
from regtta.monitoring.alarms import Alarm
from regtta.options import field_types
from regtta_bench.training.recipe import Recipe

WRONG = {
    bool: ["no", "", 0, 1, None],
    float: [math.inf, -math.inf, math.nan, "1", True, None, [1.0]],
    int: [math.inf, 1.5, "1", True, None, [1]],
    Literal: ["no such choice", 3, ["kl"]],
}


def classes_of(module, base):
    found = [cls for _, cls in inspect.getmembers(module, inspect.isclass) if issubclass(cls, base)]
    return [cls for cls in found if not inspect.isabstract(cls) and cls is not base]


CLASSES = [
    *regtta.METHODS.values(),
    *classes_of(guards, guards.Guard),
    *classes_of(monitor, Alarm),
    regtta.Execution,
    Recipe,
]


def alternatives(kind):
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def allowed(value, kind):
    """Return True if ``value`` has one of the types in ``kind``."""
    return any(
        (value is None and option is type(None)) or (type(value) is int and option in (int, float))
        for option in alternatives(kind)
    )


CASES = [
    (cls, name, value)
    for cls in CLASSES
    for name, kind in field_types(cls).items()
    for option in alternatives(kind)
    for value in WRONG.get(get_origin(option) or option, [])
    if not allowed(value, kind)
]


def test_every_kind_of_class_and_field_is_covered():
    assert {regtta.SSA, guards.Gate, guards.HealthCheck, monitor.DriftAlarm} <= set(CLASSES)
    names = {(cls.__name__, name) for cls, name, _ in CASES}
    assert {("SSA", "clip"), ("SSA", "lr"), ("SSA", "k"), ("Prototype", "rescale"), ("Execution", "compile")} <= names


@pytest.mark.parametrize(
    ("cls", "name", "value"), CASES, ids=[f"{cls.__name__}.{name}={value!r}" for cls, name, value in CASES]
)
def test_a_value_of_a_wrong_type_raises_an_error_naming_the_option(cls, name, value):
    cls()  # the defaults are accepted
    with pytest.raises(OptionError, match=rf"\b{name}\b"):
        cls(**{name: value})


@pytest.mark.parametrize("name", ["level", "tolerance"])
@pytest.mark.parametrize("value", [math.inf, math.nan, "1", True])
def test_the_monitor_rejects_invalid_numbers(name, value):
    model = small_models.mlp()
    adapter = regtta.Adapter(model, regtta.SSA(k=2), regtta.collect(model, small_models.table(100).split(50)))
    with pytest.raises(OptionError, match=name):
        attach(regtta.Monitor(**{name: value}), adapter)


def test_invalid_values_of_other_options_are_rejected():
    with pytest.raises(OptionError, match=r"branch to be the nn.Linear"):
        regtta.TTT(branch=nn.Conv2d(1, 1, 1))
    with pytest.raises(OptionError, match="terms and weights as tuples"):
        regtta.Sum(terms=None)
    for weight in (math.inf, math.nan, "1", True):
        with pytest.raises(OptionError, match="a weight"):
            regtta.Sum(terms=(regtta.Tent(), regtta.SSA()), weights=(1.0, weight))
    with pytest.raises(OptionError, match="a weight"):
        regtta.create_method("tent+inf*ssa")


def test_checkpoints_reject_a_string_for_overwrite(tmp_path):
    adapter = regtta.Adapter(small_models.mlp(), regtta.BNAdapt(), head="6")
    with pytest.raises(OptionError, match="overwrite to be True or False, found 'no'"):
        attach(regtta.Checkpoint(tmp_path / "stream.safetensors", overwrite="no"), adapter)


def test_values_of_the_correct_type_are_accepted():
    assert regtta.SSA(lr=1, clip=False, k="auto", optimizer=torch.optim.SGD).lr == 1
    assert regtta.TTT(branch=nn.Linear(8, 4), seed=7).seed == 7
    assert guards.MinBatchSize(None).least is None
