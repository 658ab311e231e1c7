import copy
import dataclasses
import functools
import math

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import (
    BatchError,
    HeadError,
    HeadMismatchError,
    MismatchError,
    ModelError,
    ModelMismatchError,
    OptionError,
    StatisticsError,
)
from regtta.guards import Guard
from regtta.methods import Method, NewHead, Rule, Schedule


def make(method=None, model=None, stream=None, **options):
    model = model or small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    return regtta.Adapter(model, method or regtta.SSA(k=4), source, **options)


def make_stream(batches=6, size=16, seed=2):
    return small_models.table(batches * size, shift=1.0, scale=1.5, seed=seed).split(size)


def test_adapting_matches_a_plain_torch_implementation():
    """Compares with the algorithm of the paper, written in plain torch."""
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    adapter = regtta.Adapter(model, regtta.SSA.from_paper(k=4), source)

    plain = copy.deepcopy(model).eval()
    norms = [plain[1], plain[4]]
    for norm in norms:
        norm.train()
    optimizer = torch.optim.Adam([p for n in norms for p in n.parameters()], lr=1e-3)
    basis, lam = source.basis[:, :4].float(), source.variances[:4].float()
    alpha = 1 + (plain[6].weight.detach() @ basis).abs().squeeze(0)
    for x in make_stream():
        features = plain[:6](x)
        outputs = plain[6](features)
        projected = (features - source.mean.float()) @ basis
        m, s = projected.mean(0), projected.var(0)
        loss = (alpha * ((m**2 + lam) / s + (m**2 + s) / lam - 2)).sum() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step = adapter.adapt(x)
        torch.testing.assert_close(step.predictions, outputs.detach(), rtol=1e-5, atol=1e-6)
        assert step.diagnostics.loss == pytest.approx(loss.item(), rel=1e-5)
        grads = torch.cat([p.grad.flatten() for n in norms for p in n.parameters()])
        assert step.diagnostics.gradient_norm == pytest.approx(grads.norm().item(), rel=1e-4)
    for name, value in adapter.export().state_dict().items():
        torch.testing.assert_close(value, plain.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [True, False])
def test_the_users_model_is_never_modified(mode):
    model = small_models.mlp().train(mode)
    model[0].weight.requires_grad_(False)
    model[3].register_forward_hook(lambda *_: None)
    before = small_models.model_snapshot(model)
    adapter = make(model=model)
    list(adapter.run(make_stream()))
    adapter.predict(small_models.table(4))
    adapter.load_state_dict(adapter.state_dict())
    adapter.reset()
    adapter.export()
    adapter.adapt(torch.full((3, 5), torch.nan))
    small_models.assert_unchanged(before, model)


def test_predictions_precede_the_update_and_predict_changes_nothing():
    adapter = make()
    x = make_stream(1)[0]
    expected = copy.deepcopy(adapter.export()).train()
    with torch.no_grad():
        before = expected(x)
    torch.testing.assert_close(adapter.adapt(x).predictions, before, rtol=1e-6, atol=1e-7)
    state = adapter.state_dict()
    first, second = adapter.predict(x), adapter.predict(x)
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert_same_state(state, adapter.state_dict())
    assert not torch.equal(first, before)


def test_steps_are_numbered_and_the_loss_decreases_on_a_stationary_stream():
    steps = list(make(lr=1e-2).run(make_stream(60)))
    assert [step.index for step in steps] == list(range(60))
    losses = [step.diagnostics.loss for step in steps]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    displacements = [step.diagnostics.displacement for step in steps]
    assert 0 < displacements[0] < displacements[-1]
    assert all(step.diagnostics.verdict == regtta.Verdict(learned=True) for step in steps)
    assert not steps[0].predictions.requires_grad


def test_only_affine_parameters_and_running_statistics_change():
    adapter = make()
    initial = adapter.export().state_dict()
    list(adapter.run(make_stream()))
    live = adapter.model
    assert {n for n, p in live.named_parameters() if p.requires_grad} == {
        "1.weight",
        "1.bias",
        "4.weight",
        "4.bias",
    }
    assert all(p.grad is None for p in live.parameters() if not p.requires_grad)
    moved = {n for n, v in adapter.export().state_dict().items() if not torch.equal(v, initial[n])}
    assert moved == {
        f"{layer}.{part}"
        for layer in (1, 4)
        for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }


def test_training_the_extractor_leaves_the_head_unchanged():
    adapter = make(trainable="extractor", batch_norm="source")
    initial = adapter.export().state_dict()
    list(adapter.run(make_stream()))
    moved = {n for n, v in adapter.export().state_dict().items() if not torch.equal(v, initial[n])}
    assert {"0.weight", "3.weight", "1.weight"} <= moved
    assert not {n for n in moved if n.startswith("6.") or "running" in n}


def test_source_batch_norm_predicts_like_the_model():
    model = small_models.mlp()
    adapter = make(model=model, batch_norm="source")
    x = make_stream(1)[0]
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(adapter.adapt(x).predictions, expected, rtol=1e-6, atol=1e-7)


def test_debiased_batch_norm_counts_only_updates_of_the_stream():
    model = small_models.mlp()
    adapter = make(model=model, batch_norm="debiased", bn_momentum=0.1, lr=1e-12)
    x, y = make_stream(2)
    adapter.adapt(x)
    adapter.adapt(x[:1])  # rejected: must not count as an update
    adapter.adapt(y)
    with torch.no_grad():
        means = [model[0](batch).mean(0) for batch in (x, y)]
    expected = (0.9 * means[0] + means[1]) / 1.9
    torch.testing.assert_close(adapter.export()[1].running_mean, expected, rtol=1e-4, atol=1e-5)


def test_several_steps_per_batch_match_repeated_updates_on_the_batch():
    x = make_stream(1)[0]
    thrice, once = make(steps=3), make()
    reported = thrice.adapt(x)
    first = once.adapt(x)
    once.adapt(x)
    once.adapt(x)
    assert torch.equal(reported.predictions, first.predictions)
    assert reported.diagnostics.loss == first.diagnostics.loss
    assert torch.equal(thrice.predict(x), once.predict(x))
    assert reported.diagnostics.displacement > first.diagnostics.displacement


@pytest.mark.parametrize(
    "optimizer",
    ["sgd", "adamw", "rmsprop", torch.optim.Adagrad, functools.partial(torch.optim.SGD, momentum=0.9)],
)
def test_every_kind_of_optimizer_is_accepted(optimizer):
    adapters = make(optimizer=optimizer), make()
    for adapter in adapters:
        list(adapter.run(make_stream()))
    x = small_models.table(5)
    assert not torch.equal(adapters[0].predict(x), adapters[1].predict(x))


def test_an_sgd_update_is_the_gradient_times_the_learning_rate():
    adapter = make(optimizer="sgd", lr=0.01)
    initial = adapter.state_dict()["learner"]["tensors"]
    norm = adapter.adapt(make_stream(1)[0]).diagnostics.gradient_norm
    now = adapter.state_dict()["learner"]["tensors"]
    names = ["1.weight", "1.bias", "4.weight", "4.bias"]
    moved = torch.cat([now[n] - initial[n] for n in names]).norm().item()
    assert moved == pytest.approx(0.01 * norm, rel=1e-3)


# --- bad batches ---------------------------------------------------------------------------------


def nan_rows():
    x = make_stream(1)[0].clone()
    x[3] = torch.nan
    x[7, 0] = torch.inf
    return x


BAD = {
    "nan": (lambda: torch.full((16, 5), torch.nan), "16 of 16 samples are not finite"),
    "single": (lambda: make_stream(1)[0][:1], "a batch of 1 has no variance"),
    "constant": (lambda: make_stream(1)[0][:1].repeat(9, 1), "all samples are the same"),
    "empty": (lambda: make_stream(1)[0][:0], "a batch of 0 has no variance"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("method", [regtta.SSA(k=4), regtta.SSA(k=4, batch_norm="debiased"), regtta.BNAdapt()])
def test_a_bad_batch_is_predicted_and_changes_nothing(kind, method):
    bad, reason = BAD[kind][0](), BAD[kind][1]
    adapter, reference = make(method), make(method)
    for x in make_stream(3):
        adapter.adapt(x)
        reference.adapt(x)
    state = adapter.state_dict()
    expected = adapter.predict(bad)
    step = adapter.adapt(bad)
    assert step.diagnostics.verdict == regtta.Verdict(learned=False, reason=reason)
    assert step.diagnostics.loss is None
    assert torch.equal(step.predictions.nan_to_num(), expected.nan_to_num())
    assert_same_state(state | {"index": 4}, adapter.state_dict())
    for x in make_stream(3, seed=9):
        assert torch.equal(adapter.adapt(x).predictions, reference.adapt(x).predictions)


def test_an_error_in_the_forward_pass_changes_nothing():
    adapter, reference = make(), make()
    x, y = make_stream(2)
    state = adapter.state_dict()
    seen = []

    def raise_error(module, args, out):
        seen.append(1)
        raise RuntimeError("out of memory")

    handle = adapter.model[5].register_forward_hook(raise_error)
    with pytest.raises(RuntimeError, match="out of memory"):
        adapter.adapt(x)
    handle.remove()
    assert seen
    assert_same_state(state, adapter.state_dict())
    assert not any(module.training for module in adapter.model.modules())
    assert torch.equal(adapter.adapt(y).predictions, reference.adapt(y).predictions)


def test_a_step_with_a_non_finite_loss_is_undone_and_its_batch_predicted():
    adapter = make(guards=regtta.guards.DEFAULT)
    x = make_stream(1)[0]
    x = torch.cat([x[:1].repeat(8, 1), x[:1] * (1 + 1e-30)])  # identical features in float32
    x[0, 0] += 1e-7
    state = adapter.state_dict()
    expected = adapter.predict(x)
    adapter._session.stream.learner.rule.mean = adapter._session.stream.learner.rule.mean * torch.nan
    step = adapter.adapt(x)
    assert math.isnan(step.diagnostics.loss)
    assert step.diagnostics.verdict.reason == "the loss is not finite"
    assert torch.equal(step.predictions, expected)
    assert_same_state(state | {"index": 1}, adapter.state_dict())


def test_guards_can_be_chosen_by_the_user():
    class RejectAll(Guard):
        def before_step(self, inputs):
            return "not today"

    step = make(guards=[RejectAll()]).adapt(make_stream(1)[0])
    assert step.diagnostics.verdict.reason == "not today"
    assert make(guards=[]).adapt(make_stream(1)[0][:1].repeat(9, 1)).diagnostics.verdict.learned


def test_rejecting_a_later_step_undoes_only_that_step():
    calls = []

    class RejectThird(Guard):
        def after_step(self, outcome):
            calls.append(outcome)
            return "enough" if len(calls) == 3 else None

    x = make_stream(1)[0]
    adapter, twice = make(guards=[RejectThird()], steps=5), make(steps=2)
    step = adapter.adapt(x)
    twice.adapt(x)
    assert len(calls) == 3
    assert step.diagnostics.verdict.learned
    assert torch.equal(adapter.predict(x), twice.predict(x))


# --- streams -------------------------------------------------------------------------------------


def assert_same_state(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same_state(a[key], b[key])
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


@pytest.mark.parametrize(
    "method", [regtta.SSA(k=4), regtta.SSA(k=4, batch_norm="debiased"), regtta.BNAdapt(), regtta.NoAdaptation()]
)
def test_a_reset_adapter_matches_a_new_one(method):
    used, new = make(method), make(method)
    list(used.run(make_stream(5)))
    used.reset()
    start_time = {"begun": "whenever"}
    assert_same_state(used.state_dict() | start_time, new.state_dict() | start_time)
    for x in make_stream(5, seed=4):
        a, b = used.adapt(x), new.adapt(x)
        assert a.index == b.index
        assert a.diagnostics == b.diagnostics
        assert torch.equal(a.predictions, b.predictions)


@pytest.mark.parametrize("method", [regtta.SSA(k=4), regtta.SSA(k=4, batch_norm="debiased", optimizer="sgd")])
def test_a_resumed_stream_matches_an_uninterrupted_one(method, tmp_path):
    uninterrupted, first, second = make(method), make(method), make(method)
    stream = make_stream(8)
    steps = list(uninterrupted.run(stream))
    list(first.run(stream[:3]))
    torch.save(first.state_dict(), tmp_path / "state.pt")
    list(second.run(make_stream(2, seed=7)))  # its earlier state must not matter
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for step, x in zip(steps[3:], stream[3:], strict=True):
        again = second.adapt(x)
        assert again.index == step.index
        assert again.diagnostics == step.diagnostics
        assert torch.equal(again.predictions, step.predictions)


def test_a_state_is_a_copy():
    adapter = make()
    adapter.adapt(make_stream(1)[0])
    state = adapter.state_dict()
    kept = copy.deepcopy(state)
    list(adapter.run(make_stream(3)))
    assert_same_state(state, kept)
    adapter.load_state_dict(state)
    list(adapter.run(make_stream(3)))
    assert_same_state(state, kept)


def test_states_of_another_stream_are_rejected():
    adapter = make()
    state = adapter.state_dict()
    with pytest.raises(MismatchError, match="method of the state"):
        make(lr=1e-4).load_state_dict(state)
    with pytest.raises(MismatchError, match="model of the state"):
        make(model=small_models.mlp(seed=3)).load_state_dict(state)
    state["learner"]["tensors"].pop("1.weight")
    with pytest.raises(MismatchError, match="other parameters"):
        adapter.load_state_dict(state)


def test_export_returns_a_plain_independent_model():
    model = small_models.mlp()
    model[0].weight.requires_grad_(False)
    adapter = make(model=model, batch_norm="debiased")
    list(adapter.run(make_stream(2)))
    x = small_models.table(9)
    expected = adapter.predict(x)
    exported = adapter.export()
    assert type(exported) is nn.Sequential
    assert [p.requires_grad for p in exported.parameters()] == [p.requires_grad for p in model.parameters()]
    assert all(p.grad is None for p in exported.parameters())
    assert not any(m._forward_pre_hooks or m.training for m in exported.modules())
    assert [getattr(m, "momentum", None) for m in exported] == [getattr(m, "momentum", None) for m in model]
    list(adapter.run(make_stream(2)))
    with torch.no_grad():
        assert torch.equal(exported(x), expected)


# --- inputs and options --------------------------------------------------------------------------


def test_supported_kinds_of_batches():
    x = make_stream(1)[0]
    expected = make().adapt(x).predictions
    assert torch.equal(make().adapt((x, torch.ones(16))).predictions, expected)
    assert torch.equal(make(inputs="x").adapt({"x": x, "y": 1}).predictions, expected)
    assert torch.equal(make(inputs="x").predict({"x": x}), make().predict(x))
    assert torch.equal(make().adapt({"x": x, "y": 1}).predictions, expected)  # y is a label
    with pytest.raises(BatchError, match=r"keys here: \['x', 'z'\]"):
        make().adapt({"x": x, "z": 1})


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_adapting_works_with_gradients_disabled_by_the_caller(mode):
    plain, served = make(), make()
    for x in make_stream(3):
        expected = plain.adapt(x)
        with mode():
            step = served.adapt(x + 0)  # created inside, like the tensors of a request
        assert torch.equal(step.predictions, expected.predictions)
        assert step.diagnostics == expected.diagnostics
    with mode():
        predicted = served.predict(x + 0)
    assert torch.equal(predicted, plain.predict(x))


def test_targets_are_rejected_by_unsupervised_methods():
    with pytest.raises(BatchError, match="ssa adapts without labels"):
        make().adapt(make_stream(1)[0], targets=torch.ones(16))


def test_options_override_the_method_and_unknown_options_are_rejected():
    assert make(lr=0.5, k=2).method == regtta.SSA(k=2, lr=0.5)
    with pytest.raises(OptionError, match="no option 'leraning_rate'"):
        make(leraning_rate=1)


@pytest.mark.parametrize("method", [regtta.SSA, None, 3])
def test_values_that_are_not_methods_are_rejected(method):
    with pytest.raises(OptionError, match=r"Expected a method such as regtta.SSA\(\), found"):
        regtta.Adapter(small_models.mlp(), method)


def test_missing_or_mismatched_statistics_are_rejected():
    model, other = small_models.mlp(), small_models.mlp(seed=4)
    source = regtta.collect(model, small_models.table(400).split(50))
    with pytest.raises(StatisticsError, match=r"SSA needs source statistics.*regtta.collect"):
        regtta.Adapter(model, regtta.SSA())
    with pytest.raises(ModelMismatchError, match=r"another model.*allow_mismatch=True"):
        regtta.Adapter(other, regtta.SSA(k=4), source)
    with pytest.raises(HeadMismatchError, match="'6', not at '3'"):
        regtta.Adapter(model, regtta.SSA(k=4), source, head="3")
    with pytest.raises(HeadMismatchError, match="takes 20 features, but the statistics have 12"):
        regtta.Adapter(small_models.mlp(width=20), regtta.SSA(k=4), source, allow_mismatch=True)
    with pytest.raises(HeadError, match="Expected nn.Linear at '5'"):
        regtta.Adapter(model, regtta.SSA(k=4), source, head="5", allow_mismatch=True)
    for adapter in (
        regtta.Adapter(other, regtta.SSA(k=4), source, allow_mismatch=True),
        regtta.Adapter(model, regtta.SSA(k=4), source, head="3", allow_mismatch=True),
        regtta.Adapter(model, regtta.SSA(k=4), source, head="6"),
    ):
        assert adapter.adapt(make_stream(1)[0]).diagnostics.verdict.learned


def changed_by_a_step(model, source, **options):
    adapter = regtta.Adapter(model, regtta.SSA(k=2), source, **options)
    assert adapter.adapt(make_stream(1)[0]).adapted
    after = dict(adapter.export().named_parameters())
    return {name for name, before in model.named_parameters() if not torch.equal(before, after[name])}


def test_a_model_without_normalisation_layers_adapts_its_biases(caplog):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    source = regtta.collect(model, small_models.table(100).split(50))
    assert changed_by_a_step(model, source) == {"0.bias", "2.bias"}
    (warning,) = caplog.messages
    assert "its biases are updated instead, 8 values in 2 tensors" in warning
    assert f"warning      {warning}" in regtta.Adapter(model, regtta.SSA(k=2), source).summary()
    caplog.clear()
    assert changed_by_a_step(model, source, trainable="bias") == {"0.bias", "2.bias"}
    everything = {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert changed_by_a_step(model, source, trainable="extractor") == everything
    assert not caplog.records


def test_a_model_without_normalisation_layers_and_biases_needs_another_trainable_set():
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 1))
    source = regtta.collect(model, small_models.table(100).split(50))
    with pytest.raises(ModelError, match=r'neither a normalisation layer.*nor a bias.*trainable="extractor"'):
        regtta.Adapter(model, regtta.SSA(k=2), source)
    assert changed_by_a_step(model, source, trainable="extractor") == {"0.weight"}


class LastState(nn.Module):
    """LSTM with a linear head on its last state."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(5, 4, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


def test_the_biases_of_a_recurrent_network_adapt():
    torch.manual_seed(0)
    model = LastState()
    series = torch.randn(200, 6, 5)
    source = regtta.collect(model, series.split(50))
    adapter = regtta.Adapter(model, regtta.SSA(k=2), source)
    assert adapter.adapt(series[:32] + 1).adapted
    after = dict(adapter.export().named_parameters())
    changed = {name for name, before in model.named_parameters() if not torch.equal(before, after[name])}
    assert changed == {"cell.bias_ih_l0", "cell.bias_hh_l0"}
    again = regtta.Adapter(model, regtta.SSA(k=2), source)
    again.load_state_dict(adapter.state_dict())
    assert torch.equal(again.predict(series[:5]), adapter.predict(series[:5]))


def test_no_adaptation_predicts_like_the_model_and_reports_no_learning():
    model, x = small_models.mlp(), make_stream(1)[0]
    adapter = regtta.Adapter(model, regtta.NoAdaptation())
    step = adapter.adapt(x)
    with torch.no_grad():
        assert torch.equal(step.predictions, model(x))
    assert step.diagnostics == regtta.Diagnostics(
        None, None, 0.0, regtta.Verdict(learned=False, reason="source changes nothing")
    )


class HalvingRule(Rule):
    """Halves the head at every batch."""

    def __init__(self, head):
        self.head = head
        self.seen = 0

    def update(self, batch):
        self.seen += len(batch.features)
        return NewHead(self.head.weight / 2, None if self.head.bias is None else self.head.bias + 1)

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


@dataclasses.dataclass(frozen=True)
class Halving(Method):
    name = "halving"
    paper = ""
    needs_head = True

    @property
    def schedule(self):
        return Schedule()

    def start(self, stage):
        return HalvingRule(stage.require_head())


@pytest.mark.parametrize("bias", [True, False])
def test_a_rule_may_return_a_new_head_and_keep_state(bias):
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1, bias=bias))
    adapter = regtta.Adapter(model, Halving())
    with pytest.raises(MismatchError, match="has not found the head of the model yet"):
        adapter.state_dict()
    x = small_models.table(8)
    adapter.reset()  # nothing to reset yet
    step = adapter.adapt(x)
    with torch.no_grad():
        assert torch.equal(step.predictions, model(x))
    assert step.diagnostics.verdict.learned
    adapter.adapt(x)
    exported = adapter.export()
    torch.testing.assert_close(exported[1].weight, model[1].weight / 4)
    if bias:
        torch.testing.assert_close(exported[1].bias, model[1].bias + 2)
    assert torch.equal(exported[0].weight, model[0].weight)
    assert adapter.state_dict()["learner"]["rule"] == {"seen": 16}
    adapter.reset()
    assert adapter.state_dict()["learner"]["rule"] == {"seen": 0}
    assert torch.equal(adapter.export()[1].weight, model[1].weight)


def test_a_rule_that_returns_a_new_head_must_not_have_an_optimizer():
    class Both(Halving):
        @property
        def schedule(self):
            return Schedule(trainable="affine", optimizer=torch.optim.SGD)

    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    adapter = regtta.Adapter(model, Both())
    with pytest.raises(OptionError, match="halving returned a new head, but its schedule has an optimizer"):
        adapter.adapt(small_models.table(8))
    assert torch.equal(adapter.export()[2].weight, model[2].weight)


def test_a_rejected_step_does_not_change_the_state_of_the_rule():
    class RejectSteps(Guard):
        def after_step(self, outcome):
            return "no"

    adapter = regtta.Adapter(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1)), Halving(), guards=[RejectSteps()])
    adapter.adapt(small_models.table(8))
    assert adapter.state_dict()["learner"]["rule"] == {"seen": 0}


def test_half_precision_models_adapt_with_a_float32_loss():
    model = small_models.mlp().bfloat16()
    source = regtta.collect(model, small_models.table(400).bfloat16().split(50))
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source)
    step = adapter.adapt(make_stream(1)[0].bfloat16())
    assert step.predictions.dtype == torch.bfloat16
    assert math.isfinite(step.diagnostics.loss)
    assert adapter._session.stream.learner.rule.alpha.dtype == torch.float32


def test_dropout_is_disabled_while_adapting():
    model = small_models.cnn()
    source = regtta.collect(model, small_models.images(100).split(25))
    runs = [regtta.Adapter(model, regtta.SSA(k=3), source) for _ in range(2)]
    for x in small_models.images(40, shift=0.3).split(10):
        assert torch.equal(runs[0].adapt(x).predictions, runs[1].adapt(x).predictions)


def test_features_come_from_the_current_model_and_change_nothing():
    model, x = small_models.mlp(), small_models.table(40, shift=1.0)
    source = regtta.collect(model, small_models.table(200).split(50))
    adapter = regtta.Adapter(model, regtta.SSA(k=3, lr=0.05), source)
    before = {name: value.clone() for name, value in adapter.export().state_dict().items()}
    torch.testing.assert_close(adapter.features(x), model[:6](x))
    assert all(torch.equal(value, before[name]) for name, value in adapter.export().state_dict().items())
    adapter.adapt(x)
    torch.testing.assert_close(adapter.features(x), adapter.export()[:6](x))
    assert not torch.equal(adapter.features(x), model[:6](x))
    assert not adapter.features(x).requires_grad
    with pytest.raises(regtta.errors.MismatchError, match="head of the model is not known"):
        regtta.Adapter(model, regtta.NoAdaptation()).features(x)
