"""States of adapters: copies on the way in and out, parts of users' own, values that were never finite."""

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
class KeepEvery(Guard):
    """Marks every step as worth returning to."""

    def after_step(self, outcome):
        return MarkGood()


def make(**options):
    model = small_models.mlp()
    return regtta.Adapter(model, regtta.SSA(k=4), regtta.collect(model, small_models.table(400).split(50)), **options)


def spoil(state):
    """Write into every tensor of a state, and take its dicts apart."""
    for value in list(state.values()):
        if isinstance(value, dict):
            spoil(value)
        elif isinstance(value, torch.Tensor) and value.numel():
            value.fill_(7)
    state.clear()


@pytest.fixture
def kept():
    adapter = make(guards=[KeepEvery()])
    for x in STREAM[:3]:
        adapter.adapt(x)
    good = adapter.export().state_dict()
    return adapter, good


def assert_returns_to(adapter, good):
    assert adapter.rollback() == "good"
    now = adapter.export().state_dict()
    assert all(torch.equal(now[name], value) for name, value in good.items())
    assert adapter.adapt(STREAM[5]).predictions.isfinite().all()


def test_what_is_done_to_a_state_that_was_given_out_does_not_reach_the_good_model(kept):
    adapter, good = kept
    spoil(adapter.state_dict()["good"])
    assert_returns_to(adapter, good)


def test_what_is_done_to_a_state_that_was_loaded_does_not_reach_the_good_model(kept):
    adapter, good = kept
    resumed, state = make(guards=[KeepEvery()]), adapter.state_dict()
    resumed.load_state_dict(state)
    spoil(state)
    assert_returns_to(resumed, good)


def test_a_state_in_memory_may_be_loaded_twice_and_stays_as_it_is(kept):
    state = kept[0].state_dict()
    before = copy.deepcopy(state)
    first, second = make(guards=[KeepEvery()]), make(guards=[KeepEvery()])
    first.load_state_dict(state)
    for x in STREAM[3:6]:
        first.adapt(x)
    second.load_state_dict(state)
    assert torch.equal(second.state_dict()["learner"]["tensors"]["1.weight"], before["learner"]["tensors"]["1.weight"])
    assert torch.equal(state["good"]["tensors"]["1.weight"], before["good"]["tensors"]["1.weight"])


# --- values that are not finite --------------------------------------------------------------------


class Masked(nn.Module):
    """Holds a mask of −∞ and one NaN that it never uses, as trained models do."""

    def __init__(self):
        super().__init__()
        self.net = small_models.mlp()
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, torch.nan]))

    def forward(self, x):
        return self.net(x) + self.mask.exp()[1]


def test_infinities_of_the_model_itself_are_allowed_where_they_were(tmp_path):
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


# --- rules and guards of users' own ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Hoarding(GradientMethod):
    """A method of the user's, whose rule keeps what it likes."""

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
    """A guard of the user's, whose watch keeps a list that grows."""

    def start(self, post):
        return DiaryWatch()


class DiaryWatch(GuardState):
    def __init__(self):
        self.lines = []

    def before_step(self, arrival):
        self.lines.append(arrival.size)

    def state_dict(self):
        return {"lines": list(self.lines), **({"last": self.lines[-1]} if self.lines else {})}

    def load_state_dict(self, state):
        self.lines = list(state["lines"])


def own_adapter(fail=False):
    return regtta.Adapter(small_models.mlp(), Hoarding(fail=fail), head="6", guards=[Diary(), HealthCheckless()])


@dataclass(frozen=True)
class HealthCheckless(Guard):
    """A guard that remembers nothing."""


def test_rules_and_guards_of_users_own_keep_what_they_like(tmp_path):
    whole = own_adapter()
    for x in STREAM[:3]:
        whole.adapt(x)
    for x in STREAM[3:6]:
        write_state(tmp_path / "s", whole.state_dict(), overwrite=True)
        resumed = own_adapter()
        resumed.load_state_dict(read_state(tmp_path / "s"))
        assert torch.equal(resumed.adapt(x).predictions, whole.adapt(x).predictions)


def test_a_rule_of_the_users_own_that_refuses_its_state_leaves_all_as_it_was():
    adapter, other = own_adapter(fail=True), own_adapter(fail=True)
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


def test_a_subclass_that_writes_more_is_not_judged_by_its_base():
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
