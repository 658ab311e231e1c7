"""The optimizer's state is kept by parameter: any execution goes on from any other, with any optimizer."""

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

LAST = Execution(channels_last=True)
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
    """A model in float64 whose every gradient is more than rounding: no bias before BatchNorm takes it away again."""
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
    """What one step adds to the weights, as one vector in logical order."""
    before = weights(adapter)
    adapter.adapt(x)
    after = weights(adapter)
    return torch.cat([(after[name] - before[name]).double().flatten() for name in before])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("first", "second"), [(LAST, PLAIN), (PLAIN, LAST), (LAST, LAST)])
def test_the_update_after_resuming_in_another_execution_is_the_uninterrupted_one(optimizer, first, second, tmp_path):
    whole, begun, resumed = adapter(optimizer), adapter(optimizer, first), adapter(optimizer, second)
    for x in STREAM[:6]:
        whole.adapt(x)
        begun.adapt(x)
    write_state(tmp_path / "s", begun.state_dict())
    resumed.load_state_dict(read_state(tmp_path / "s"))
    expected, found = update(whole, STREAM[6]), update(resumed, STREAM[6])
    assert nn.functional.cosine_similarity(expected, found, dim=0) > 0.9999
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("execution", [PLAIN, LAST])
def test_the_same_execution_goes_on_bit_for_bit(optimizer, execution, tmp_path):
    whole = adapter(optimizer, execution)
    for x in STREAM[:3]:
        whole.adapt(x)
    for x in STREAM[3:7]:
        write_state(tmp_path / "s", whole.state_dict(), overwrite=True)
        resumed = adapter(optimizer, execution)
        resumed.load_state_dict(read_state(tmp_path / "s"))
        assert torch.equal(resumed.adapt(x).predictions, whole.adapt(x).predictions)
        assert torch.equal(resumed.predict(STREAM[0]), whole.predict(STREAM[0]))


def test_moments_lie_in_the_order_of_their_parameter():
    """Against torch's own Adam on the parameters themselves."""
    to_memory_format = adapter("adam", LAST)
    for x in STREAM[:3]:
        to_memory_format.adapt(x)
    state = to_memory_format.state_dict()["learner"]["optimizer"]["state"]
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


def test_the_good_model_is_kept_by_parameter_as_well(tmp_path):
    guards = (regtta.guards.HealthCheck(every=1),)
    model, source = cnn()
    method = regtta.SSA(k=4, trainable="extractor", lr=1e-3)
    begun = regtta.Adapter(model, method, source, guards=guards, execution=LAST)
    for x in STREAM:
        begun.adapt(x)
        if begun.state_dict()["good"]:
            break
    good = begun.state_dict()["good"]["optimizer"]["state"]
    resumed = regtta.Adapter(model, method, source, guards=guards)
    write_state(tmp_path / "s", begun.state_dict())
    resumed.load_state_dict(read_state(tmp_path / "s"))
    assert resumed.rollback() == "good"
    now = resumed.state_dict()["learner"]["optimizer"]["state"]
    assert now["0.weight"]["exp_avg"].shape == (6, 3, 3, 3)
    assert all(torch.equal(now[name][key], good[name][key]) for name in good for key in good[name])


# --- states of version 0.1.0 -----------------------------------------------------------------------


def test_a_state_of_0_1_0_that_does_not_say_its_layout_is_refused():
    golden = STREAMS["cnn_ssa_adam_extractor"]
    fresh, used = golden.adapter(), golden.adapter()
    path = FOLDER / "cnn_ssa_adam_extractor_checkpoint.safetensors"
    with pytest.raises(StateError, match=r"by regtta 0\.1\.0.*memory format of 0\.weight of shape \(4, 2, 3, 3\)"):
        used.load_state_dict(read_state(path)["adapter"])
    x = load_file(FOLDER / "cnn_ssa_adam_extractor_following.safetensors")["batches"][0]
    assert torch.equal(used.adapt(x).predictions, fresh.adapt(x).predictions)


def test_where_both_layouts_are_one_a_state_of_0_1_0_goes_on():
    """Kernels of 1 × 1 lie in memory the same way in either layout."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1)).eval()
    images = torch.randn(64, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    source = regtta.collect(model, images.split(16))
    method = regtta.SSA(k=4, trainable="extractor")
    whole, resumed = (regtta.Adapter(model, method, source) for _ in range(2))
    for x in (images + 1).split(16):
        whole.adapt(x)
    state = whole.state_dict()
    optimizer = whole._session.started.learner._optimizer.optimizer
    old = {**state["learner"], "optimizer": copy.deepcopy(optimizer.state_dict())}
    del old["format"]
    resumed.load_state_dict(state | {"learner": old})
    for x in (images + 2).split(16):
        assert torch.equal(resumed.adapt(x).predictions, whole.adapt(x).predictions)


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
def test_hostile_states_of_the_old_format_are_refused_too(change, words):
    golden = STREAMS["mlp_ssa_default"]
    state = read_state(FOLDER / "mlp_ssa_default_checkpoint.safetensors")["adapter"]
    change(state["learner"]["optimizer"])
    with pytest.raises(StateError, match=words):
        golden.adapter().load_state_dict(state)


# --- optimizers of the user's own ------------------------------------------------------------------


class Lion(torch.optim.Optimizer):
    """Keeps what torch knows nothing of: a count by itself, a history that grows, and a value for all."""

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
    """One of torch's, with more in its state."""

    def step(self):
        super().step()
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["seen"] = self.state[parameter].get("seen", 0) + 1


class Wrapped(torch.optim.SGD):
    """Writes its state in a form of its own."""

    def state_dict(self):
        return {"inner": super().state_dict(), "kind": "wrapped"}

    def load_state_dict(self, state):
        super().load_state_dict(state["inner"])


class Grouped:
    """Two groups of parameters, with rates of their own."""

    def __call__(self, parameters, lr):
        parameters = list(parameters)
        rest = {"params": parameters[1:], "lr": lr / 10}
        return torch.optim.AdamW([{"params": parameters[:1], "lr": lr}, rest], lr=lr, amsgrad=True)


class Decaying:
    """Torch's own, with a schedule that a hook moves on."""

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
def test_optimizers_of_the_users_own_are_resumed_exactly(factory, tmp_path):
    model, source = cnn()
    method = regtta.SSA(k=4, optimizer=factory, lr=1e-2)
    whole = regtta.Adapter(model, method, source)
    for x in STREAM[:3]:
        whole.adapt(x)
    for x in STREAM[3:7]:
        write_state(tmp_path / "s", whole.state_dict(), overwrite=True)
        resumed = regtta.Adapter(model, method, source)
        resumed.load_state_dict(read_state(tmp_path / "s"))
        assert torch.equal(resumed.adapt(x).predictions, whole.adapt(x).predictions)
        assert torch.equal(resumed.predict(STREAM[0]), whole.predict(STREAM[0]))


def test_a_state_of_torchs_own_is_checked_in_a_subclass_as_well():
    model, source = cnn()
    begun = regtta.Adapter(model, regtta.SSA(k=4, optimizer=CountingAdam), source)
    begun.adapt(STREAM[0])
    state = begun.state_dict()
    state["learner"]["optimizer"]["state"]["1.weight"]["exp_avg"] = torch.ones(1)
    with pytest.raises(StateError, match="state/1.weight/exp_avg"):
        begun.load_state_dict(state)


def test_a_newer_format_says_so():
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
        whole, begun, resumed = (
            regtta.Adapter(model, method, source, execution=execution) for execution in (PLAIN, first, second)
        )
        for x in stream[:6]:
            whole.adapt(x)
            begun.adapt(x)
        write_state(tmp_path / f"{number}", begun.state_dict())
        resumed.load_state_dict(read_state(tmp_path / f"{number}"))
        for x in stream[6:11]:
            expected, found = update(whole, x), update(resumed, x)
            assert nn.functional.cosine_similarity(expected, found, dim=0) > 0.9999
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
