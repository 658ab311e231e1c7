"""Descriptions of options are the same in every process, for options of any kind."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import regtta
from regtta.persistence.identity import same_description, to_dict, to_dict_v0_1_0

TESTS = Path(__file__).parents[1]

STREAM_SCRIPT = """
import dataclasses, functools, sys
from pathlib import Path
import torch
import regtta
from helpers import small_models
from helpers.attaching import attach

def sgd(parameters, lr, momentum=0.0):
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum)

class Factory:
    def __init__(self, momentum):
        self.momentum = momentum
        self.make = functools.partial(sgd, momentum=momentum)
    def __call__(self, parameters, lr):
        return self.make(parameters, lr=lr)
    def build(self, parameters, lr):
        return self(parameters, lr)

@dataclasses.dataclass
class Frozen:
    momentum: float = 0.9
    def __call__(self, parameters, lr):
        return sgd(parameters, lr, self.momentum)

def lookahead(inner, *, every):
    def make(parameters, lr):
        return inner(parameters, lr=lr)
    return make

OPTIMIZERS = {
    "function": sgd,
    "partial of a function": functools.partial(sgd, momentum=0.9),
    "partial of a partial": functools.partial(functools.partial(sgd, momentum=0.9)),
    "partial of a class": functools.partial(torch.optim.SGD, momentum=0.9),
    "class": torch.optim.SGD,
    "object": Factory(0.9),
    "dataclass": Frozen(),
    "bound method": Factory(0.9).build,
    "lambda": lambda parameters, lr: sgd(parameters, lr),
    "closure": lookahead(sgd, every=5),
}

class Branch(nn.Linear if (nn := torch.nn) else object):
    def __repr__(self):
        return f"<Branch at {hex(id(self))}>"

def adapter(kind):
    model = small_models.cnn() if kind == "module" else small_models.mlp()
    if kind == "module":
        branch = Branch(10, 4)
        with torch.no_grad():
            branch.weight.fill_(0.1), branch.bias.zero_()
        return regtta.Adapter(model, regtta.TTT(branch=branch), head="9")
    source = regtta.collect(model, small_models.table(200).split(50))
    return regtta.Adapter(model, regtta.SSA(k=3, optimizer=OPTIMIZERS[kind]), source)

def batches(kind):
    return (small_models.images(64, shift=1.0) if kind == "module" else small_models.table(64, shift=1.0)).split(16)

if __name__ == "__main__":
    folder, task = Path(sys.argv[1]), sys.argv[2]
    for kind in [*OPTIMIZERS, "module"]:
        keeper = attach(regtta.Checkpoint(folder / f"{kind}.safetensors", every=1), adapter(kind))
        done = keeper.resume()
        assert done == (0 if task == "begin" else 2), (kind, done)
        for x in batches(kind)[done:done + 2]:
            keeper.adapter.adapt(x)
        keeper.save()
        print(kind)
"""


def test_a_second_process_resumes_with_any_kind_of_optimizer(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(STREAM_SCRIPT)
    padding = [object() for _ in range(1000)]  # so that addresses differ
    for task in ("begin", "resume"):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])}
        run = subprocess.run(
            [sys.executable, script, tmp_path, task], capture_output=True, text=True, check=False, env=environment
        )
        assert run.returncode == 0, run.stderr
        assert len(run.stdout.splitlines()) == 11
    assert len(padding) == 1000


def test_an_imported_program_resumes_a_checkpoint_that_it_wrote_as_a_script(tmp_path):
    (tmp_path / "program.py").write_text(STREAM_SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [TESTS.parent / "src", TESTS, tmp_path]))}
    first = [sys.executable, tmp_path / "program.py", tmp_path, "begin"]
    second = [sys.executable, "-c", f"import program, regtta\nfrom helpers.attaching import attach\n"
              f"keeper = attach(regtta.Checkpoint(r'{tmp_path}/function.safetensors'), program.adapter('function'))\n"
              "assert keeper.resume() == 2"]  # fmt: skip
    for command in (first, second):
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert run.returncode == 0, run.stderr


@dataclass(frozen=True)
class Options:
    value: object = None


def describe_option(value):
    return to_dict(Options(value))["value"]


def factory(parameters, lr):
    return torch.optim.SGD(parameters, lr)


class Scaled:
    def __init__(self, scale, inner=None):
        self.scale, self.inner = scale, inner

    def __call__(self, x):
        return x * self.scale


def test_descriptions_of_each_kind_of_value():
    assert describe_option(factory) == f"{__name__}.factory"
    assert describe_option(torch.optim.SGD) == "SGD"
    assert describe_option(functools.partial(factory, 1, lr=0.1)) == {
        "partial": f"{__name__}.factory",
        "arguments": [1],
        "keywords": {"lr": 0.1},
    }
    assert describe_option(Scaled(2.0)) == {"type": f"{__name__}.Scaled", "scale": 2.0, "inner": None}
    assert describe_option(Scaled(2.0)) != describe_option(Scaled(3.0))
    assert describe_option(Options(1)) == {"type": "Options", "value": 1}
    assert describe_option((1, [2, {"a": factory}])) == [1, [2, {"a": f"{__name__}.factory"}]]
    assert describe_option({"b", "a"}) == ["a", "b"]
    assert describe_option(Scaled(1).__call__)["of"]["scale"] == 1
    assert describe_option(Path("a/b")) == repr(Path("a/b"))


def test_modules_and_tensors_are_described_by_their_values():
    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    assert describe_option(first) != describe_option(second)
    second.load_state_dict(first.state_dict())
    assert describe_option(first) == describe_option(second)
    assert "0x" not in str(describe_option(first))
    assert describe_option(torch.zeros(2000)) != describe_option(
        torch.zeros(2000).index_fill(0, torch.tensor([1000]), 1.0)
    )


def test_descriptions_of_objects_with_circular_references_are_short():
    first, second = Scaled(1), Scaled(2)
    first.inner, second.inner = second, first
    wide = Scaled(3, [Scaled(number, [first] * 50) for number in range(50)])
    assert len(json.dumps(describe_option(first))) < 2000
    assert len(json.dumps(describe_option(wide))) < 20000


def test_descriptions_are_json_without_memory_addresses():
    for value in (factory, functools.partial(factory), Scaled(1), Scaled(1, Scaled(2)), object(), lambda x: x):
        text = json.dumps(describe_option(value))
        assert "0x" not in text


@pytest.mark.parametrize(
    "value", [torch.optim.SGD, functools.partial(torch.optim.SGD, momentum=0.9), factory, nn.Linear(2, 1), {"a": 1}]
)
def test_descriptions_of_version_0_1_0_are_reproduced(value):
    expected = getattr(value, "__qualname__", None) or repr(value)
    assert to_dict_v0_1_0(Options(value)) == {"type": "Options", "value": expected}


def test_descriptions_with_arbitrary_values_can_be_compared():
    own = {"type": "Options", "values": [1, "a", None, 0.5]}
    assert same_description(json.loads(json.dumps(own)), own)
    for other in (None, [], torch.zeros(3), {"type": "Options", "values": torch.zeros(4)}, {**own, "values": [1, "a"]},
                  {**own, "values": [1, "a", None, torch.zeros(2)]}, {**own, "more": 1}):  # fmt: skip
        assert not same_description(other, own)


def test_a_state_of_a_method_with_another_branch_is_rejected():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    make = functools.partial(regtta.Adapter, model, head="2")
    begun = make(regtta.TTT(branch=nn.Linear(4, 4)))
    with pytest.raises(regtta.errors.MismatchError, match="The method of the state and of the adapter differ"):
        make(regtta.TTT(branch=nn.Linear(4, 4))).load_state_dict(begun.state_dict())
