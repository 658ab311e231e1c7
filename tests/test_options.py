import dataclasses
import functools
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch

from regtta.errors import OptionError
from regtta.options import (
    check_bool,
    check_choice,
    check_fraction,
    check_non_negative,
    check_positive,
    check_positive_int,
    describe_type,
    field_types,
    parse_options,
    replace,
)
from regtta.persistence.identity import to_dict


@dataclasses.dataclass(frozen=True)
class Options:
    rate: float = 0.1
    k: int | Literal["auto"] = 3
    width: int | None = None
    weighting: bool = True
    name: str = "x"
    metric: Literal["kl", "w2"] = "kl"
    optimizer: Literal["adam"] | Callable[..., object] = "adam"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate=1e-3", {"rate": 1e-3}),
        ("k=25", {"k": 25}),
        ("k=auto", {"k": "auto"}),
        ("width=none", {"width": None}),
        ("width=7", {"width": 7}),
        ("weighting=false", {"weighting": False}),
        ("weighting=Yes", {"weighting": True}),
        ("weighting=0", {"weighting": False}),
        ("name=a=b", {"name": "a=b"}),
        ("metric=w2", {"metric": "w2"}),
        ("optimizer=adam", {"optimizer": "adam"}),
    ],
)
def test_strings_are_parsed_by_the_type_of_the_field(text, expected):
    parsed = parse_options("Options", field_types(Options), [text])
    assert parsed == expected
    assert [type(v) for v in parsed.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k=2.5", "Cannot read k='2.5': expected int | \"auto\""),
        ("width=seven", "expected int | none"),
        ("weighting=maybe", "expected bool"),
        ("metric=kl2", 'expected "kl" | "w2"'),
        ("rate", "Expected key=value, found 'rate'"),
        ("wieghting=true", "Did you mean 'weighting'?"),
        ("zzz=1", "Options has no option 'zzz'; it has ['k', 'metric'"),
    ],
)
def test_invalid_strings_raise(text, message):
    with pytest.raises(OptionError) as error:
        parse_options("Options", field_types(Options), [text])
    assert message in str(error.value)


def test_replace_suggests_similar_names():
    assert replace(Options(), {"k": 5, "rate": 0.5}) == Options(k=5, rate=0.5)
    with pytest.raises(OptionError, match=r"no option 'metrik'.*Did you mean 'metric'\?"):
        replace(Options(), {"metrik": "kl"})


def test_checks():
    check_choice("metric", "kl", ("kl", "w2"))
    with pytest.raises(OptionError, match=r"metric to be one of \['kl', 'w2'\], found 'kll'. Did you mean 'kl'"):
        check_choice("metric", "kll", ("kl", "w2"))
    for wrong in (["kl"], {"kl": 1}, np.array(["kl", "w2"]), None):
        with pytest.raises(OptionError, match="metric to be one of"):
            check_choice("metric", wrong, {"kl": 1, "w2": 2}.keys())
        with pytest.raises(OptionError, match="metric to be one of"):
            check_choice("metric", wrong, ("kl", "w2"))
    check_positive("lr", 1e-9)
    for wrong in (0, -1.0, float("nan"), float("inf"), 10**400, True, "1", None):
        with pytest.raises(OptionError, match="lr to be a number above 0"):
            check_positive("lr", wrong)
    check_non_negative("mismatch", 0)
    for wrong in (-1e-9, float("nan"), float("inf"), 10**400, True, "1", None):
        with pytest.raises(OptionError, match="mismatch to be a number of at least 0"):
            check_non_negative("mismatch", wrong)
    check_fraction("level", 0.5)
    for wrong in (0, 1, float("nan"), float("inf"), True, "0.5"):
        with pytest.raises(OptionError, match="level to be a number between 0 and 1"):
            check_fraction("level", wrong)
    check_bool("clip", True)
    check_bool("clip", False)
    for wrong in ("no", "", 0, 1, None, np.True_, torch.tensor(True)):
        with pytest.raises(OptionError, match="clip to be True or False"):
            check_bool("clip", wrong)
    check_positive_int("steps", 1)
    for wrong in (0, 1.0, True, "1"):
        with pytest.raises(OptionError, match="steps to be a whole number"):
            check_positive_int("steps", wrong)


def test_field_types_of_other_classes_are_empty():
    assert field_types(int) == {}


def test_to_dict_does_not_depend_on_the_process():
    def factory(parameters, lr):
        return torch.optim.SGD(parameters, lr)

    plain = to_dict(Options(optimizer=factory))
    assert plain["type"] == "Options"
    assert plain["rate"] == 0.1
    assert "0x" not in str(plain)
    assert plain["optimizer"].endswith("factory")
    partial = to_dict(Options(optimizer=functools.partial(torch.optim.SGD, momentum=0.9)))
    assert partial["optimizer"] == {"partial": "SGD", "arguments": [], "keywords": {"momentum": 0.9}}
    assert to_dict(Options(optimizer=torch.optim.SGD))["optimizer"] == "SGD"


def test_to_dict_of_tuples_and_nested_dataclasses():
    @dataclasses.dataclass(frozen=True)
    class Outer:
        parts: tuple[object, ...] = (Options(k=1), 2.0)

    assert to_dict(Outer())["parts"] == [to_dict(Options(k=1)), 2.0]


def test_describe_type():
    assert describe_type(int | None) == "int | none"
    assert describe_type(Literal["a", "b"]) == '"a" | "b"'
    assert describe_type(float) == "float"
