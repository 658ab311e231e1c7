"""Adapter states: copying on save and load, user-defined rules and guards, and non-finite values."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import StateError
from regtta.guards import Guard, GuardState, HealthCheck, MarkGood
from regtta.methods import GradientMethod, Rule
from regtta.persistence.state_files import read_state, write_state

STREAM = small_models.table(20 * 16, shift=1.0, scale=1.5, seed=2).split(16)


@dataclass(frozen=True)
class AlwaysGood(Guard):
    """Marks the model as good after every step."""

    def after_step(self, outcome):
        return MarkGood()


def make(**options):
    model = small_models.mlp()
    return regtta.Adapter(model, regtta.SSA(k=4), regtta.collect(model, small_models.table(400).split(50)), **options)


def overwrite_state(state):
    """Overwrite every tensor of a state, and empty its dicts."""
    for value in list(state.values()):
        if isinstance(value, dict):
            overwrite_state(value)
        elif isinstance(value, torch.Tensor) and value.numel():
            value.fill_(7)
    state.clear()


@pytest.fixture
def adapter_with_good_model():
    adapter = make(guards=[AlwaysGood()])
    for x in STREAM[:3]:
        adapter.adapt(x)
    good = adapter.export().state_dict()
    return adapter, good


def assert_rolls_back_to(adapter, good):
    assert adapter.rollback() == "good"
    now = adapter.export().state_dict()
    assert all(torch.equal(now[name], value) for name, value in good.items())
    assert adapter.adapt(STREAM[5]).predictions.isfinite().all()


def test_modifying_a_returned_state_does_not_change_the_good_model(adapter_with_good_model):
    adapter, good = adapter_with_good_model
    overwrite_state(adapter.state_dict()["good"])
    assert_rolls_back_to(adapter, good)


def test_modifying_a_loaded_state_does_not_change_the_good_model(adapter_with_good_model):
    adapter, good = adapter_with_good_model
    resumed, state = make(guards=[AlwaysGood()]), adapter.state_dict()
    resumed.load_state_dict(state)
    overwrite_state(state)
    assert_rolls_back_to(resumed, good)


def test_a_state_can_be_loaded_twice_and_is_not_modified(adapter_with_good_model):
    state = adapter_with_good_model[0].state_dict()
    before = copy.deepcopy(state)
    first, second = make(guards=[AlwaysGood()]), make(guards=[AlwaysGood()])
    first.load_state_dict(state)
    for x in STREAM[3:6]:
        first.adapt(x)
    second.load_state_dict(state)
    assert torch.equal(second.state_dict()["learner"]["tensors"]["1.weight"], before["learner"]["tensors"]["1.weight"])
    assert torch.equal(state["good"]["tensors"]["1.weight"], before["good"]["tensors"]["1.weight"])


# --- non-finite values -----------------------------------------------------------------------------


class Masked(nn.Module):
    """Has a buffer with −∞ and an unused NaN, such as the masks of trained models."""

    def __init__(self):
        super().__init__()
        self.net = small_models.mlp()
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, torch.nan]))

    def forward(self, x):
        return self.net(x) + self.mask.exp()[1]


def test_non_finite_values_of_the_model_are_accepted_in_place(tmp_path):
    model = Masked()
    adapter = regtta.Adapter(model, regtta.BNAdapt(), guards=())
    adapter.adapt(STREAM[0])
    write_state(tmp_path / "s", adapter.state_dict())
    state = read_state(tmp_path / "s")
    adapter.load_state_dict(state)
    assert adapter.adapt(STREAM[1]).predictions.isfinite().all()
    for other in ([0.0, torch.inf, torch.nan], [torch.nan, -torch.inf, torch.nan], [-torch.inf, -torch.inf, 0.0]):
        state["learner"]["tensors"]["mask"] = torch.tensor(other)
        with pytest.raises(StateError, match="learner/tensors/mask"):
            adapter.load_state_dict(state)
    state["learner"]["tensors"]["mask"] = torch.tensor([1.0, 0.0, 0.0])
    adapter.load_state_dict(state)


# --- user-defined rules and guards -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Hoarding(GradientMethod):
    """User-defined method whose rule keeps arbitrary state."""

    name = "hoarding"
    paper = ""
    fail: bool = False

    def start(self, stage):
        return Hoarder(self.fail)


class Hoarder(Rule):
    def __init__(self, fail):
        self.fail = fail
        self.kept = {"nothing": None}

    def update(self, batch):
        count = len(self.kept)
        self.kept[f"batch {count}"] = batch.outputs.detach().clone()
        self.kept["nothing"] = torch.full((count,), torch.inf)
        return (batch.outputs**2).mean() * count

    def state_dict(self):
        return dict(self.kept)

    def load_state_dict(self, state):
        if self.fail and "poison" in state:
            self.kept = {}
            raise KeyError("poison")
        self.kept = dict(state)


@dataclass(frozen=True)
class Diary(Guard):
    """User-defined guard whose state is a growing list."""

    def start(self, post):
        return DiaryState()


class DiaryState(GuardState):
    def __init__(self):
        self.lines = []

    def before_step(self, arrival):
        self.lines.append(arrival.size)

    def state_dict(self):
        return {"lines": list(self.lines), **({"last": self.lines[-1]} if self.lines else {})}

    def load_state_dict(self, state):
        self.lines = list(state["lines"])


def make_custom_adapter(fail=False):
    return regtta.Adapter(small_models.mlp(), Hoarding(fail=fail), head="6", guards=[Diary(), Stateless()])


@dataclass(frozen=True)
class Stateless(Guard):
    """Guard without state."""


def test_user_defined_rules_and_guards_can_keep_arbitrary_state(tmp_path):
    uninterrupted = make_custom_adapter()
    for x in STREAM[:3]:
        uninterrupted.adapt(x)
    for x in STREAM[3:6]:
        write_state(tmp_path / "s", uninterrupted.state_dict(), overwrite=True)
        resumed = make_custom_adapter()
        resumed.load_state_dict(read_state(tmp_path / "s"))
        assert torch.equal(resumed.adapt(x).predictions, uninterrupted.adapt(x).predictions)


def test_a_user_defined_rule_that_rejects_its_state_leaves_the_adapter_unchanged():
    adapter, other = make_custom_adapter(fail=True), make_custom_adapter(fail=True)
    for x in STREAM[:3]:
        adapter.adapt(x)
    for x in STREAM[3:5]:
        other.adapt(x)
    state = other.state_dict()
    state["learner"]["rule"]["poison"] = 1
    before = adapter.state_dict()
    with pytest.raises(StateError, match="KeyError: 'poison'"):
        adapter.load_state_dict(state)
    after = adapter.state_dict()
    assert after["learner"]["rule"].keys() == before["learner"]["rule"].keys()
    assert after["watches"] == before["watches"]
    tensors = before["learner"]["tensors"]
    assert all(torch.equal(after["learner"]["tensors"][name], value) for name, value in tensors.items())


def test_a_subclass_may_extend_the_state_of_its_base_class():
    class More(type(HealthCheck().start(regtta.guards.GuardContext(2, *_source())))):
        def state_dict(self):
            return {**super().state_dict(), "more": "of it"}

    @dataclass(frozen=True)
    class MoreHealth(HealthCheck):
        def start(self, post):
            return More(self, post.whitening("MoreHealth"))

    adapter = make(guards=[MoreHealth()])
    adapter.adapt(STREAM[0])
    adapter.load_state_dict(adapter.state_dict())


def _source():
    model = small_models.mlp()
    return regtta.collect(model, small_models.table(400).split(50)), model[-1]
