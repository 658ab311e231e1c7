"""A wrong argument raises a RegttaError whose message says what to pass instead."""

import pathlib

import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.attaching import attach
from regtta import guards
from regtta import monitoring as monitor
from regtta.errors import (
    BatchError,
    HeadError,
    MissingFileError,
    ModelError,
    OptionError,
    ProcessError,
    StatisticsError,
)
from regtta.execution.modes import Execution

MODEL = small_models.mlp()
SOURCE = regtta.collect(MODEL, small_models.table(100).split(50))
X = small_models.table(16)


def adapter(method=None, source=SOURCE, model=MODEL, **options):
    return regtta.Adapter(model, method or regtta.SSA(k=2), source, **options)


def oracle(targets, task="regression", model=MODEL):
    return regtta.Adapter(model, regtta.Oracle(task=task), head="6").adapt(X, targets=targets)


WRONG = {
    "guards None": (lambda: adapter(guards=None), OptionError, r"guards.*found None.*Pass regtta.SAFE"),
    "guards by name": (lambda: adapter(guards="safe"), OptionError, r"found 'safe'.*Pass regtta.SAFE"),
    "one guard": (
        lambda: adapter(guards=guards.Gate()),
        OptionError,
        r"tuple.*found Gate\(.*regtta.guards.Gate\(\),\)",
    ),
    "a class of guards": (
        lambda: adapter(guards=[guards.Gate]),
        OptionError,
        r"the class Gate, of which Gate\(\) is one",
    ),
    "guards a class": (lambda: adapter(guards=guards.Gate), OptionError, r"the class Gate.*Pass regtta.SAFE"),
    "a method among guards": (lambda: adapter(guards=[regtta.BNAdapt()]), OptionError, r"instances of Guard"),
    "execution by name": (lambda: adapter(execution="fast"), OptionError, r"found 'fast'. Pass regtta.FAST"),
    "execution None": (lambda: adapter(execution=None), OptionError, r"found None. Pass regtta.FAST"),
    "execution a class": (lambda: adapter(execution=Execution), OptionError, r"regtta.Execution\(precision=...\)"),
    "method a class": (
        lambda: adapter(regtta.SSA),
        OptionError,
        r"regtta.SSA\(\), found the class SSA, not an instance",
    ),
    "an unknown method": (lambda: adapter("saa"), OptionError, r"Did you mean 'ssa'"),
    "source a missing file": (lambda: adapter(source="a.safetensors"), MissingFileError, r"no file a.safetensors"),
    "source a missing Path": (lambda: adapter(source=pathlib.Path("a")), MissingFileError, r"no file a"),
    "source a loader": (lambda: adapter(source=[X]), StatisticsError, r"with regtta.collect\(model, loader\)"),
    "head a number": (lambda: adapter(head=3), HeadError, r"found 3. Pass its name.*\['0', '3', '6'\]"),
    "head a layer": (lambda: adapter(head=MODEL[6]), HeadError, r"found Linear\(.*Pass its name.*\['0', '3', '6'\]"),
    "inputs a set": (lambda: adapter(inputs={"x"}), OptionError, r"inputs to be a key, an index.*found {'x'}. Omit it"),
    "output a list": (lambda: adapter(output=[0]), OptionError, r"output to be a key, an index.*found \[0\]. Omit it"),
    "features a name": (lambda: adapter(features="last"), OptionError, r"features to be a callable.*found 'last'"),
    "an unknown pooling": (
        lambda: regtta.collect(MODEL, [X], head="6[max]"),
        HeadError,
        r"one of first, last, mean, matched, all",
    ),
    "model a class": (lambda: adapter(model=nn.Linear), ModelError, r"found the class Linear. Pass the trained module"),
    "model a state": (lambda: adapter(model=MODEL.state_dict()), ModelError, r"found OrderedDict.*load_state_dict"),
    "allow_mismatch": (lambda: adapter(allow_mismatch="no"), OptionError, r"allow_mismatch to be True or False"),
    "a group by name": (lambda: adapter(process_group="world"), ProcessError, r"torch.distributed.init_process_group"),
    "an unknown option": (lambda: adapter(learning_rate=1), OptionError, r"SSA has no option 'learning_rate'"),
    "an option of another type": (lambda: adapter(lr="fast"), OptionError, r"lr to be a number above 0"),
    "targets as numpy": (lambda: oracle(np.zeros(16)), BatchError, r"ndarray. Pass torch.from_numpy\(targets\)"),
    "targets as a list": (lambda: oracle([0.0] * 16), BatchError, r"list. Pass torch.tensor\(targets\)"),
    "targets of another length": (lambda: oracle(torch.zeros(3)), BatchError, r"Pass one row per sample"),
    "classes as floats": (
        lambda: oracle(torch.zeros(16), "classification", small_models.mlp(3)),
        BatchError,
        r"Pass class indices \(B,\) as integers",
    ),
    "classes of another length": (
        lambda: oracle(torch.zeros(3).long(), "classification", small_models.mlp(3)),
        BatchError,
        r"Pass class indices",
    ),
    "classes beyond the last": (
        lambda: oracle(torch.full((16,), 3), "classification", small_models.mlp(3)),
        BatchError,
        r"from 0 to C - 1",
    ),
    "inputs as numpy": (lambda: adapter().adapt(X.numpy()), BatchError, r"torch.from_numpy"),
    "float64 inputs": (lambda: adapter().adapt(X.double()), BatchError, r"torch.float64.*torch.float32.*x\.float\(\)"),
    "integer inputs": (lambda: adapter().predict(X.long()), BatchError, r"torch.int64.*torch.float32.*x\.float\(\)"),
    "features of float64": (lambda: adapter().features(X.double()), BatchError, r"x\.float\(\)"),
    "collecting float64": (lambda: regtta.collect(MODEL, [X.double()]), BatchError, r"x\.float\(\)"),
    "collecting on no device": (
        lambda: regtta.collect(MODEL, [X], device="gpu"),
        OptionError,
        r"device='gpu'.*\"cuda:0\"",
    ),
    "collecting on a number": (lambda: regtta.collect(MODEL, [X], device=1.5), OptionError, r"device=1.5.*\"cpu\""),
    "collecting from nothing": (lambda: regtta.collect(MODEL, None), BatchError, r"Pass a DataLoader"),
    "collecting at a number": (lambda: regtta.collect(MODEL, [X], head=3), HeadError, r"Pass head=<name>"),
    "gathering by name": (lambda: regtta.collect(MODEL, [X], methods=["ttt"]), OptionError, r"list of methods.*'ttt'"),
    "gathering by one name": (
        lambda: regtta.collect(MODEL, [X], methods="ttt"),
        OptionError,
        r"list of methods.*'ttt'",
    ),
    "gathering for a class": (
        lambda: regtta.collect(MODEL, [X], methods=[regtta.SSA]),
        OptionError,
        r"list of methods",
    ),
    "gathering for one": (lambda: regtta.collect(MODEL, [X], methods=regtta.SSA()), OptionError, r"list of methods"),
    "a class of callbacks": (lambda: adapter(callbacks=[regtta.Monitor]), OptionError, r"callbacks.*the class Monitor"),
    "alarms None": (lambda: attach(regtta.Monitor(alarms=None), adapter()), OptionError, r"alarms.*\(\) for none"),
    "a class of alarms": (
        lambda: attach(regtta.Monitor(alarms=[monitor.ShiftAlarm]), adapter()),
        OptionError,
        r"of which ShiftAlarm\(\) is one",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_raises_an_error_that_says_what_to_pass(case):
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=f"(?s){message}"):
        call()


def test_an_unavailable_device_is_rejected():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(OptionError, match=r"device='cuda'.*or leave it out"):
        regtta.collect(MODEL, [X], device="cuda")


def test_valid_arguments_are_accepted():
    assert adapter(guards=(guard for guard in regtta.SAFE)).guards == regtta.SAFE
    assert adapter(guards=[]).guards == ()
    assert adapter(head="6", inputs="x").adapt({"x": X, "y": X}).predictions.shape == (16, 1)
    assert regtta.collect(MODEL, [X], device=torch.device("cpu")).count == 16
    assert oracle(torch.zeros(16, dtype=torch.int32), "classification", small_models.mlp(3)).diagnostics.verdict.learned
    assert oracle(torch.full((16, 3), 1 / 3), "classification", small_models.mlp(3)).diagnostics.verdict.learned


@pytest.mark.parametrize("execution", [Execution(), Execution(compile=True), Execution(precision="bfloat16")])
def test_errors_in_the_model_are_the_same_under_every_execution(execution):
    running = adapter(execution=execution)
    for _ in range(5):  # compiling begins at the third batch of a shape
        with pytest.raises(BatchError, match=r"torch.float64.*torch.float32.*x\.float\(\)"):
            running.adapt(X.double())
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            running.adapt(small_models.table(16, inputs=7))
        with pytest.raises(BatchError, match=r"x\.float\(\)"):
            running.predict(X.double())
    assert running.adapt(X + 1).diagnostics.verdict.learned


class Filtered(nn.Module):
    """A spectral filter with complex coefficients before a network."""

    def __init__(self):
        super().__init__()
        self.factors = nn.Parameter(torch.ones(5, dtype=torch.complex64))
        self.model = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 1))

    def forward(self, x):
        return self.model(torch.fft.ifft(torch.fft.fft(x) * self.factors).real)


def test_complex_parameters_are_rejected_if_the_optimizer_cannot_update_them():
    torch.manual_seed(0)
    model = Filtered()
    source = regtta.collect(model, small_models.table(100).split(50))
    for optimizer in ("adam", "adamw", "sgd"):
        with pytest.raises(ModelError, match=r"\['factors'\] are complex.*torch.optim.Adam.*trainable=\"affine\""):
            regtta.Adapter(model, regtta.SSA(k=2, trainable="extractor", optimizer=optimizer), source)
    for options in ({}, {"trainable": "extractor", "optimizer": torch.optim.Adam}):
        assert regtta.Adapter(model, regtta.SSA(k=2, **options), source).adapt(X + 1).diagnostics.verdict.learned
