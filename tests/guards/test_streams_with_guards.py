"""Adapters with guards: resumed, rolled back, frozen, in inference mode."""

import pytest
import torch
from torch import nn

import regtta
from helpers import regressor, small_models
from helpers.states import assert_same
from regtta.guards import (
    ALIGNED_WITH_SOURCE,
    DEFAULT,
    SAFE,
    FiniteInputs,
    Gate,
    Guard,
    GuardState,
    HealthCheck,
    MarkGood,
    OutputRange,
    Rollback,
)

METHOD = regtta.SSA(k=8, lr=1e-2)


def adapter_of(method=METHOD, guards=SAFE, **options):
    model, source = regressor.model_and_statistics()
    return regtta.Adapter(model, method, source, guards=guards, **options)


def stream(batches=24, size=32, seed=1, **options):
    options = {"shift": 2.0} | options
    return regressor.sample_inputs(batches * size, torch.Generator().manual_seed(seed), **options).split(size)


def eventful():
    """Return a clean, shifted, corrupted, far-off and again clean stream: most guards reject a batch of it."""
    spoiled = stream(1, seed=5)[0].clone()
    spoiled[3, 1] = torch.nan
    return [
        *stream(3, shift=0.0),
        *stream(50, seed=2, shift=3.0),
        spoiled,
        stream(1, seed=6)[0][:5],
        *stream(3, seed=3, shift=12.0),
        *stream(24, seed=4, shift=0.0),
    ]


def assert_same_steps(a, b):
    assert a.index == b.index
    assert a.diagnostics == b.diagnostics
    assert torch.equal(a.predictions.nan_to_num(), b.predictions.nan_to_num())


def assert_resumes(make, batches, stops):
    whole = make()
    states, steps = {}, []
    for index, x in enumerate(batches):
        if index in stops:
            states[index] = whole.state_dict()
        steps.append(whole.adapt(x))
    for index, state in states.items():
        second = make()
        list(second.run(batches[:2]))  # earlier batches must have no effect
        second.load_state_dict(state)
        for step, x in zip(steps[index:], batches[index:], strict=True):
            assert_same_steps(second.adapt(x), step)
        assert_same(second.state_dict(), whole.state_dict())
    return steps


# Each alone, except for FiniteInputs, since NaN would compare as False with every limit.
SINGLE_PROCESS = [(type(guard).__name__, (FiniteInputs(), guard)) for guard in SAFE]


@pytest.mark.parametrize(("name", "guards"), [("SAFE", SAFE), *SINGLE_PROCESS])
def test_a_resumed_stream_gives_the_same_verdicts(name, guards):
    batches = eventful()
    steps = assert_resumes(lambda: adapter_of(guards=guards), batches, {1, 9, 16, 52, 60})
    if name == "SAFE":
        verdicts = [step.diagnostics.verdict for step in steps]
        assert any(verdict.learned for verdict in verdicts)
        assert any(verdict.returned for verdict in verdicts)
        assert len({verdict.reason for verdict in verdicts}) >= 5


def test_resuming_with_a_window_and_blended_statistics():
    method = regtta.SSA(k=8, window=24, batch_norm="blended", lr=1e-2)
    assert_resumes(
        lambda: adapter_of(method, (Gate(), HealthCheck(every=2))), [*stream(40, 3), *stream(4, 1)], {1, 5, 20}
    )


def test_resuming_while_the_window_fills():
    method = regtta.SSA(k=8, window=128, batch_norm="source", lr=1e-2)
    assert_resumes(lambda: adapter_of(method, (Gate(),)), stream(30, 8), {6})


# --- back and forth --------------------------------------------------------------------------------


class ScriptedGuard(Guard):
    """Guard that returns the given ruling at each step, by index."""

    def __init__(self, **rulings):
        object.__setattr__(self, "rulings", {int(key[1:]): ruling for key, ruling in rulings.items()})

    def start(self, context):
        return _ScriptedState(self.rulings)


class _ScriptedState(GuardState):
    def __init__(self, rulings):
        self.rulings = rulings
        self.steps = self.rollbacks = 0

    def after_step(self, stats):
        self.steps += 1
        return self.rulings.get(self.steps - 1)

    def on_rollback(self):
        self.rollbacks += 1


def learner_state(adapter):
    return adapter.state_dict()["learner"]


@pytest.mark.parametrize("trainable", ["affine", "bias", "extractor", "all"])
def test_rollback_restores_exactly_the_marked_state(trainable):
    method = regtta.SSA(k=8, lr=1e-2, trainable=trainable)
    adapter = adapter_of(method, (ScriptedGuard(_3=MarkGood(), _6=Rollback("runs away", "good")),))
    batches = stream(12)
    for x in batches[:4]:
        assert adapter.adapt(x).diagnostics.verdict == regtta.Verdict(learned=True)
    kept = learner_state(adapter)
    for x in batches[4:6]:
        adapter.adapt(x)
    step = adapter.adapt(batches[6])
    assert step.diagnostics.verdict == regtta.Verdict(learned=False, reason="runs away", returned="good")
    assert_same(learner_state(adapter), kept)
    assert torch.equal(step.predictions, adapter.predict(batches[6]))
    assert adapter._session.stream._chain.states[0].rollbacks == 1
    reference = adapter_of(method, ())
    for x in batches[:4]:
        reference.adapt(x)
    for x in batches[7:]:
        a, b = adapter.adapt(x), reference.adapt(x)
        assert torch.equal(a.predictions, b.predictions)
        assert a.diagnostics == b.diagnostics


def test_rollback_after_the_head_has_changed():
    """Significance weights are computed from the source head and must not change after a rollback."""
    model = small_models.mlp(3)
    source = regtta.collect(model, small_models.table(400).split(50))
    method = regtta.create_method("tent+ssa", k=4, lr=0.05, trainable="all")
    adapter = regtta.Adapter(model, method, source, guards=(ScriptedGuard(_2=MarkGood()),))
    reference = regtta.Adapter(model, method, source, guards=())
    batches = small_models.table(16 * 8, shift=1.0).split(16)
    for x in batches[:3]:
        adapter.adapt(x)
        reference.adapt(x)
    for x in batches[3:6]:
        adapter.adapt(x)
    assert adapter.rollback() == "good"
    for x in batches[6:]:
        assert adapter.adapt(x).diagnostics == reference.adapt(x).diagnostics


def test_rollback_without_a_marked_state_returns_to_the_source():
    adapter, fresh = adapter_of(guards=(ScriptedGuard(_2=Rollback("runs away", "good")),)), adapter_of(guards=())
    steps = [adapter.adapt(x) for x in stream(3)]
    assert steps[-1].diagnostics.verdict.returned == "source"
    assert steps[-1].diagnostics.displacement == 0
    assert_same(learner_state(adapter), learner_state(fresh))
    assert [step.index for step in steps] == [0, 1, 2]


def test_rollback_by_the_user():
    adapter, fresh = adapter_of(guards=(ScriptedGuard(_1=MarkGood()),)), adapter_of(guards=())
    batches = stream(6)
    adapter.adapt(batches[0])
    assert adapter.rollback() == "source"
    assert_same(learner_state(adapter), learner_state(fresh))
    adapter.adapt(batches[1])
    kept = learner_state(adapter)
    adapter.adapt(batches[2])
    assert adapter.rollback() == "good"
    assert adapter.rollback() == "good"
    assert_same(learner_state(adapter), kept)
    assert adapter.state_dict()["index"] == 3  # the stream continues
    assert adapter.adapt(batches[3]).index == 3
    adapter.reset()
    assert adapter.rollback() == "source"  # the marked state belonged to the previous stream
    assert adapter.adapt(batches[0]).index == 0


def test_a_frozen_adapter_predicts_and_changes_nothing():
    adapter = adapter_of(guards=SAFE)
    list(adapter.run(stream(8)))
    before = adapter.state_dict()
    adapter.freeze()
    for x in stream(3, seed=4):
        step = adapter.adapt(x)
        assert step.diagnostics.verdict == regtta.Verdict(learned=False, reason="frozen by hand")
        assert torch.equal(step.predictions, adapter.predict(x))
    assert_same(adapter.state_dict(), before | {"index": 11, "frozen": True})
    other = adapter_of(guards=SAFE)
    other.load_state_dict(adapter.state_dict())
    assert other.adapt(x).diagnostics.verdict.reason == "frozen by hand"
    adapter.unfreeze()
    assert adapter.adapt(stream(1, seed=8)[0]).diagnostics.verdict.reason != "frozen by hand"
    adapter.freeze()
    adapter.reset()
    assert not adapter.state_dict()["frozen"]


def test_freezing_before_the_head_is_known():
    torch.manual_seed(0)
    adapter = regtta.Adapter(small_models.cnn(), regtta.TTT(branch=nn.Linear(10, 4)))
    adapter.freeze()
    assert not adapter.adapt(small_models.images(8)).diagnostics.verdict.learned


def failing_health(monkeypatch, verdicts):
    """Return an adapter whose health checks pass or fail as given by ``verdicts``."""
    answers = [value for nearer in verdicts for value in ((0.0, 1.0) if nearer else (1.0, 0.0))]
    turn = iter(answers)
    monkeypatch.setattr("regtta.guards.health.misalignment", lambda _: next(turn))
    return adapter_of(guards=(HealthCheck(every=1),))


def test_a_failed_health_check_rolls_back_to_good_and_a_second_one_to_the_source(monkeypatch):
    adapter = failing_health(monkeypatch, [True, True, False, False])
    batches = stream(12)
    returned, states = [], []
    for x in batches[:8]:
        returned.append(adapter.adapt(x).diagnostics.verdict.returned)
        states.append(learner_state(adapter))
        if returned[-1] == "source":
            break
    # The first step is not compared; two checks pass, one rolls back to good, the next to the source.
    assert returned == ["", "", "", "good", "source"]
    assert_same(states[3], states[2])
    assert_same(states[4], learner_state(adapter_of(guards=())))


def test_a_health_check_marks_a_model_that_improves():
    adapter = adapter_of(guards=(HealthCheck(every=4),))
    verdicts = [step.diagnostics.verdict for step in adapter.run(stream(40))]
    assert adapter.state_dict()["good"]
    assert sum(verdict.learned for verdict in verdicts) >= 38


def test_a_diverging_model_is_rolled_back():
    """The learning rate is far too large, so the outputs diverge."""
    model, source = regressor.model_and_statistics()
    guards = (Gate(), OutputRange(), HealthCheck(every=2))
    adapter = regtta.Adapter(model, regtta.SSA(k=8, lr=3.0), source, guards=guards)
    verdicts = [step.diagnostics.verdict for step in adapter.run(stream(40))]
    assert any(verdict.returned for verdict in verdicts)
    assert adapter.predict(stream(1, seed=9)[0]).isfinite().all()


# --- inference mode --------------------------------------------------------------------------------


@pytest.mark.parametrize("guards", [DEFAULT, SAFE], ids=["DEFAULT", "SAFE"])
@pytest.mark.parametrize("method", [METHOD, regtta.SSA(k=8, window=48, batch_norm="blended", trainable="extractor")])
def test_creation_and_use_in_inference_mode(guards, method):
    outside = adapter_of(method, guards)
    batches = eventful()
    expected = [outside.adapt(x) for x in batches]
    with torch.inference_mode():
        inside = adapter_of(method, guards)
        for step, x in zip(expected, batches, strict=True):
            assert_same_steps(inside.adapt(x + 0), step)
        inside.features(x)
        state = inside.state_dict()
        inside.rollback()
        inside.load_state_dict(state)
    restored = adapter_of(method, guards)
    restored.load_state_dict(state)
    x = stream(1, seed=11)[0]
    later = outside.adapt(x)
    assert_same_steps(restored.adapt(x), later)
    assert_same_steps(inside.adapt(x), later)


def test_a_model_exported_in_inference_mode_can_be_trained():
    adapter = adapter_of()
    with torch.inference_mode():
        exported = adapter.export()
    exported(stream(1)[0]).sum().backward()


# --- what a model may do ---------------------------------------------------------------------------


class Counting(nn.Module):
    """Model that counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.net = regressor.model_and_statistics()[0]
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.net(x)


def test_buffers_that_change_in_eval_mode_are_reset():
    model = Counting()
    source = regtta.collect(model, regressor.sample_inputs(500, torch.Generator().manual_seed(0)).split(50))
    adapter = regtta.Adapter(model, METHOD, source, guards=(Gate(),), allow_mismatch=True)
    began = adapter.export().calls.clone()
    list(adapter.run(stream(6)))
    adapter.reset()
    assert torch.equal(adapter.export().calls, began)


def test_the_windows_of_a_sum_fill_together():
    method = regtta.create_method("ssa+feature_alignment", k=4, window=32, batch_norm="source")
    adapter = adapter_of(method, ())
    learned = [step.diagnostics.verdict.learned for step in adapter.run(stream(10, 4))]
    assert learned.index(True) == 3  # half a window of 16 samples


def test_safe_learns_from_the_second_batch_of_a_huge_shift_and_returns_to_the_source_model():
    """On the way: no learning on clean batches, and after the shift exactly the source model's predictions."""
    adapter, model = adapter_of(), regressor.model_and_statistics()[0]
    clean, shifted = stream(10, 64, shift=0.0), stream(8, 64, seed=2, shift=20.0)
    back = stream(10, 64, seed=3, shift=0.0)
    learned = [adapter.adapt(x).diagnostics.verdict.learned for x in (*clean, *shifted)]
    assert not any(learned[:10])
    assert learned[10:12] == [False, True]
    steps = [adapter.adapt(x) for x in back]
    assert steps[0].diagnostics.verdict.returned == "source"
    for step, x in zip(steps, back, strict=True):
        assert not step.adapted
        with torch.no_grad():
            assert torch.equal(step.predictions, model(x))


def test_safe_learns_again_when_domains_alternate():
    adapter = adapter_of()
    reasons = [
        [adapter.adapt(x).reason for x in stream(10, 64, seed=number, shift=20.0 * (number % 2))] for number in range(4)
    ]
    assert "" not in reasons[0] + reasons[2]
    for number in (1, 3):  # learned from within two batches, and then aligned
        assert "" in reasons[number][:2]
        assert set(reasons[number][2:]) <= {"", ALIGNED_WITH_SOURCE}
