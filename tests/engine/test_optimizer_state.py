"""Optimizer state is stored per parameter: a stream can be resumed under any execution, with any optimizer."""

import copy
import functools

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import regtta
from golden.streams import FOLDER, STREAMS
from helpers import small_models
from regtta.errors import StateError
from regtta.execution.modes import PLAIN, Execution
from regtta.persistence.state_files import read_state, write_state

CHANNELS_LAST = Execution(channels_last=True)
STREAM = small_models.images(12 * 16, shift=0.5, scale=1.5, seed=2).double().split(16)
OPTIMIZERS = {
    "adam": "adam",
    "adamw": "adamw",
    "sgd": "sgd",
    "rmsprop": "rmsprop",
    "own sgd, momentum": functools.partial(torch.optim.SGD, momentum=0.9),
    "own adam, fused": functools.partial(torch.optim.Adam, fused=True),
    "own adam": torch.optim.Adam,
    "own adafactor": torch.optim.Adafactor,
    "own adagrad": torch.optim.Adagrad,
}


@functools.cache
def cnn():
    """Return a float64 model without biases before BatchNorm, whose gradients would be rounding error."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 10, 3, stride=2, bias=False), nn.BatchNorm2d(10), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(10, 1),
    ).double()  # fmt: skip
    model = small_models.update_running_statistics(model, torch.rand(64, 3, 16, 16).double())
    return model, regtta.collect(model, small_models.images(400).double().split(50))


def adapter(optimizer, execution=PLAIN, trainable="extractor"):
    model, source = cnn()
    method = regtta.SSA(k=4, optimizer=OPTIMIZERS[optimizer], trainable=trainable, lr=1e-3)
    return regtta.Adapter(model, method, source, execution=execution)


def weights(adapter):
    return {name: value.detach().clone() for name, value in adapter.export().named_parameters()}


def update(adapter, x):
    """Return the change of the weights in one step, as one vector in logical order."""
    before = weights(adapter)
    adapter.adapt(x)
    after = weights(adapter)
    return torch.cat([(after[name] - before[name]).double().flatten() for name in before])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("first", "second"), [(CHANNELS_LAST, PLAIN), (PLAIN, CHANNELS_LAST), (CHANNELS_LAST, CHANNELS_LAST)]
)
def test_the_update_after_resuming_under_another_execution_matches_the_uninterrupted_one(
    optimizer, first, second, tmp_path
):
    uninterrupted, interrupted, resumed = adapter(optimizer), adapter(optimizer, first), adapter(optimizer, second)
    for x in STREAM[:6]:
        uninterrupted.adapt(x)
        interrupted.adapt(x)
    write_state(tmp_path / "s", interrupted.state_dict())
    resumed.load_state_dict(read_state(tmp_path / "s"))
    expected, found = update(uninterrupted, STREAM[6]), update(resumed, STREAM[6])
    assert nn.functional.cosine_similarity(expected, found, dim=0) > 0.9999
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("execution", [PLAIN, CHANNELS_LAST])
def test_resuming_under_the_same_execution_is_bit_identical(optimizer, execution, tmp_path):
    uninterrupted = adapter(optimizer, execution)
    for x in STREAM[:3]:
        uninterrupted.adapt(x)
    for x in STREAM[3:7]:
        write_state(tmp_path / "s", uninterrupted.state_dict(), overwrite=True)
        resumed = adapter(optimizer, execution)
        resumed.load_state_dict(read_state(tmp_path / "s"))
        assert torch.equal(resumed.adapt(x).predictions, uninterrupted.adapt(x).predictions)
        assert torch.equal(resumed.predict(STREAM[0]), uninterrupted.predict(STREAM[0]))


def test_moments_are_stored_in_the_order_of_their_parameter():
    """Compares with torch's Adam on the same parameters."""
    channels_last = adapter("adam", CHANNELS_LAST)
    for x in STREAM[:3]:
        channels_last.adapt(x)
    state = channels_last.state_dict()["learner"]["optimizer"]["state"]
    plain = adapter("own adam")
    for x in STREAM[:3]:
        plain.adapt(x)
    by_torch = plain._session.started.learner._optimizer.optimizer.state_dict()["state"]
    names = list(plain._session.started.learner.state.trainable)
    assert state.keys() == set(names)
    for number, name in enumerate(names):
        for key in ("exp_avg", "exp_avg_sq"):
            assert state[name][key].is_contiguous()
            torch.testing.assert_close(state[name][key], by_torch[number][key], rtol=1e-6, atol=1e-12)
        assert state[name]["step"] == 3


def test_the_optimizer_state_of_the_good_model_is_stored_per_parameter(tmp_path):
    guards = (regtta.guards.HealthCheck(every=1),)
    model, source = cnn()
    method = regtta.SSA.from_paper(k=4, trainable="extractor")
    interrupted = regtta.Adapter(model, method, source, guards=guards, execution=CHANNELS_LAST)
    for x in STREAM:
        interrupted.adapt(x)
        if interrupted.state_dict()["good"]:
            break
    good = interrupted.state_dict()["good"]["optimizer"]["state"]
    resumed = regtta.Adapter(model, method, source, guards=guards)
    write_state(tmp_path / "s", interrupted.state_dict())
    resumed.load_state_dict(read_state(tmp_path / "s"))
    assert resumed.rollback() == "good"
    now = resumed.state_dict()["learner"]["optimizer"]["state"]
    assert now["0.weight"]["exp_avg"].shape == (6, 3, 3, 3)
    assert all(torch.equal(now[name][key], good[name][key]) for name in good for key in good[name])


# --- states of version 0.1.0 -----------------------------------------------------------------------


def test_a_0_1_0_state_with_ambiguous_layout_is_rejected():
    golden = STREAMS["cnn_ssa_adam_extractor"]
    fresh, used = golden.adapter(), golden.adapter()
    path = FOLDER / "cnn_ssa_adam_extractor_checkpoint.safetensors"
    with pytest.raises(StateError, match=r"by regtta 0\.1\.0.*memory format of 0\.weight of shape \(4, 2, 3, 3\)"):
        used.load_state_dict(read_state(path)["adapter"])
    x = load_file(FOLDER / "cnn_ssa_adam_extractor_following.safetensors")["batches"][0]
    assert torch.equal(used.adapt(x).predictions, fresh.adapt(x).predictions)


def test_a_0_1_0_state_is_resumed_where_both_layouts_coincide():
    """1 × 1 kernels have the same memory order in both layouts."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1)).eval()
    images = torch.randn(64, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    source = regtta.collect(model, images.split(16))
    method = regtta.SSA(k=4, trainable="extractor")
    uninterrupted, resumed = (regtta.Adapter(model, method, source) for _ in range(2))
    for x in (images + 1).split(16):
        uninterrupted.adapt(x)
    state = uninterrupted.state_dict()
    optimizer = uninterrupted._session.started.learner._optimizer.optimizer
    old = {**state["learner"], "optimizer": copy.deepcopy(optimizer.state_dict())}
    del old["format"]
    resumed.load_state_dict(state | {"learner": old})
    for x in (images + 2).split(16):
        assert torch.equal(resumed.adapt(x).predictions, uninterrupted.adapt(x).predictions)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda old: old["param_groups"][0].pop("lr"), "param_groups/0/lr"),
        (lambda old: old["param_groups"][0].update(lr=0.5), "param_groups/0/lr"),
        (lambda old: old["state"][0].update(exp_avg=torch.ones(1)), "exp_avg"),
        (lambda old: old["state"][0].pop("exp_avg"), "exp_avg"),
        (lambda old: old["state"].update({7: {}}), "state/7"),
        (lambda old: old.update(param_groups=[]), "param_groups"),
    ],
)
def test_invalid_states_of_the_old_format_are_rejected(change, words):
    golden = STREAMS["mlp_ssa_default"]
    state = read_state(FOLDER / "mlp_ssa_default_checkpoint.safetensors")["adapter"]
    change(state["learner"]["optimizer"])
    with pytest.raises(StateError, match=words):
        golden.adapter().load_state_dict(state)


# --- user-defined optimizers -----------------------------------------------------------------------


class Lion(torch.optim.Optimizer):
    """Keeps custom state: a global counter, a growing history, and an extra value per group."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        self.state["all"] = {"steps": self.state.get("all", {"steps": 0})["steps"] + 1}
        for group in self.param_groups:
            group["lr"] *= 0.9
            group["last"] = group["lr"]
            for parameter in group["params"]:
                state = self.state[parameter]
                average = state.setdefault("average", torch.zeros_like(parameter))
                history = torch.cat([state.get("history", parameter.new_empty(0)), parameter.grad.norm().view(1)])
                state["history"] = history
                average.lerp_(parameter.grad, 0.1)
                parameter.sub_(average.sign(), alpha=group["lr"] * float(history.max() > 0))


class CountingAdam(torch.optim.Adam):
    """Adam with an extra entry in its state."""

    def step(self):
        super().step()
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["seen"] = self.state[parameter].get("seen", 0) + 1


class Wrapped(torch.optim.SGD):
    """Writes its state in a custom format."""

    def state_dict(self):
        return {"inner": super().state_dict(), "kind": "wrapped"}

    def load_state_dict(self, state):
        super().load_state_dict(state["inner"])


class Grouped:
    """Two parameter groups with different learning rates."""

    def __call__(self, parameters, lr):
        parameters = list(parameters)
        rest = {"params": parameters[1:], "lr": lr / 10}
        return torch.optim.AdamW([{"params": parameters[:1], "lr": lr}, rest], lr=lr, amsgrad=True)


class Decaying:
    """SGD with a learning rate schedule in a hook."""

    def __call__(self, parameters, lr):
        optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
        optimizer.register_step_post_hook(
            lambda each, *_: each.param_groups[0].update(lr=each.param_groups[0]["lr"] / 2)
        )
        return optimizer


@pytest.mark.parametrize(
    "factory",
    [Lion, CountingAdam, Wrapped, Grouped(), Decaying()],
    ids=["Lion", "CountingAdam", "Wrapped", "Grouped", "Decaying"],
)
def test_user_defined_optimizers_are_resumed_exactly(factory, tmp_path):
    model, source = cnn()
    method = regtta.SSA(k=4, optimizer=factory, lr=1e-2)
    uninterrupted = regtta.Adapter(model, method, source)
    for x in STREAM[:3]:
        uninterrupted.adapt(x)
    for x in STREAM[3:7]:
        write_state(tmp_path / "s", uninterrupted.state_dict(), overwrite=True)
        resumed = regtta.Adapter(model, method, source)
        resumed.load_state_dict(read_state(tmp_path / "s"))
        assert torch.equal(resumed.adapt(x).predictions, uninterrupted.adapt(x).predictions)
        assert torch.equal(resumed.predict(STREAM[0]), uninterrupted.predict(STREAM[0]))


def test_the_state_of_a_torch_optimizer_subclass_is_validated():
    model, source = cnn()
    interrupted = regtta.Adapter(model, regtta.SSA(k=4, optimizer=CountingAdam), source)
    interrupted.adapt(STREAM[0])
    state = interrupted.state_dict()
    state["learner"]["optimizer"]["state"]["1.weight"]["exp_avg"] = torch.ones(1)
    with pytest.raises(StateError, match="state/1.weight/exp_avg"):
        interrupted.load_state_dict(state)


def test_a_newer_format_is_rejected_with_a_hint_to_upgrade():
    fresh = adapter("adam")
    state = fresh.state_dict()
    state["learner"]["format"] += 1
    with pytest.raises(regtta.errors.NewerFormatError, match="Upgrade regtta"):
        fresh.load_state_dict(state)


# --- on a GPU --------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop"])
@pytest.mark.parametrize("trainable", ["affine", "extractor"])
def test_captured_channels_last_and_plain_streams_resume_each_other(optimizer, trainable, tmp_path):
    fast = Execution(channels_last=True, capture=True)
    model, source = cnn()
    model, stream = copy.deepcopy(model).cuda(), [x.cuda() for x in STREAM]
    method = regtta.SSA(k=4, optimizer=optimizer, trainable=trainable)
    for number, (first, second) in enumerate([(fast, PLAIN), (PLAIN, fast), (fast, fast)]):
        uninterrupted, interrupted, resumed = (
            regtta.Adapter(model, method, source, execution=execution) for execution in (PLAIN, first, second)
        )
        for x in stream[:6]:
            uninterrupted.adapt(x)
            interrupted.adapt(x)
        write_state(tmp_path / f"{number}", interrupted.state_dict())
        resumed.load_state_dict(read_state(tmp_path / f"{number}"))
        for x in stream[6:11]:
            expected, found = update(uninterrupted, x), update(resumed, x)
            assert nn.functional.cosine_similarity(expected, found, dim=0) > 0.9999
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
