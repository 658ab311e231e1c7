"""What every method must do, on every kind of model that it fits.

A new entry of METHODS is checked without a line being added here; only where it does not fit a model,
``DOES_NOT_FIT`` says so, and then the refusal must be a clear error.
"""

import copy
import dataclasses
import math

import pytest
import torch

import regtta
import zoo
from regtta.errors import ModelError
from regtta.methods import GradientMethod

MODELS = {
    "mlp": (zoo.mlp, zoo.table),
    "cnn": (zoo.cnn, zoo.images),
    "vit": (zoo.vit, zoo.images),
}
OPTIONS = {"ssa": {"k": 4}}
DOES_NOT_FIT = {("bn_adapt", "vit")}
CASES = [(name, kind, outputs) for name in regtta.METHODS for kind in MODELS for outputs in (1, 3)]
FITTING = [case for case in CASES if case[:2] not in DOES_NOT_FIT]

every_case = pytest.mark.parametrize(("name", "kind", "outputs"), FITTING)


class Case:
    """One method on one model, with streams to run it on."""

    def __init__(self, name, kind, outputs, dtype=torch.float32):
        make, self.draw = MODELS[kind]
        self.dtype = dtype
        self.model = make(outputs).to(dtype)
        self.source = regtta.collect(self.model, self.draw(300).to(dtype).split(50))
        self.method = regtta.method(name, **OPTIONS.get(name, {}))

    def adapter(self, **options):
        return regtta.Adapter(self.model, self.method, self.source, **options)

    def stream(self, batches=5, size=12, seed=3):
        inputs = self.draw(batches * size, shift=0.8, scale=1.4, seed=seed).to(self.dtype)
        return inputs.split(size)


@pytest.mark.parametrize(("name", "kind"), sorted(DOES_NOT_FIT))
def test_a_model_that_does_not_fit_is_refused_clearly(name, kind):
    case = Case(name, kind, 1)
    with pytest.raises(ModelError, match=r"\w+ has no .*\."):
        case.adapter()


@every_case
def test_the_users_model_is_untouched(name, kind, outputs):
    case = Case(name, kind, outputs)
    case.model.train()
    before = zoo.frozen_view(case.model)
    adapter = case.adapter()
    list(adapter.run(case.stream()))
    adapter.predict(case.stream()[0])
    adapter.reset()
    adapter.export()
    zoo.assert_untouched(before, case.model)


@every_case
def test_no_hook_is_left_on_what_is_exported(name, kind, outputs):
    adapter = Case(name, kind, outputs).adapter()
    list(adapter.run(Case(name, kind, outputs).stream()))
    for module in adapter.export().modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
            assert not hooks


@every_case
def test_same_seed_same_predictions_and_reset_is_exact(name, kind, outputs):
    case = Case(name, kind, outputs)
    first, second = case.adapter(), case.adapter()
    for x in case.stream():
        assert torch.equal(first.adapt(x).predictions, second.adapt(x).predictions)
    first.reset()
    fresh = case.adapter()
    for x in case.stream(seed=8):
        a, b = first.adapt(x), fresh.adapt(x)
        assert torch.equal(a.predictions, b.predictions)
        assert a.diagnostics == b.diagnostics


@every_case
def test_frozen_parameters_never_move(name, kind, outputs):
    case = Case(name, kind, outputs)
    adapter = case.adapter()
    list(adapter.run(case.stream()))
    adapted = dict(adapter.export().named_parameters())
    movable = set(adapter.state_dict()["tensors"])
    for parameter_name, parameter in case.model.named_parameters():
        if parameter_name not in movable:
            assert torch.equal(parameter, adapted[parameter_name]), parameter_name


@every_case
def test_bad_batches_are_survived_and_cost_nothing(name, kind, outputs):
    case = Case(name, kind, outputs)
    adapter, spared = case.adapter(), case.adapter()
    good, later = case.stream(2)
    for each in (adapter, spared):
        each.adapt(good)
    poisoned = later.clone()
    poisoned[2].fill_(torch.nan)
    for bad in (poisoned, later[:1], later[:1].expand_as(later)):
        expected = adapter.predict(bad)
        step = adapter.adapt(bad)
        rows = bad.flatten(1).isfinite().all(dim=1)
        assert not step.diagnostics.verdict.learned
        assert step.diagnostics.verdict.reason
        assert torch.equal(step.predictions[rows], expected[rows])
    assert torch.equal(adapter.adapt(later).predictions, spared.adapt(later).predictions)


@every_case
def test_a_saved_stream_goes_on_identically(name, kind, outputs, tmp_path):
    case = Case(name, kind, outputs)
    whole, first, second = case.adapter(), case.adapter(), case.adapter()
    stream = case.stream(6)
    steps = list(whole.run(stream))
    list(first.run(stream[:3]))
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for step, x in zip(steps[3:], stream[3:], strict=True):
        again = second.adapt(x)
        assert torch.equal(again.predictions, step.predictions)
        assert again.diagnostics == step.diagnostics


@pytest.mark.parametrize(
    ("name", "kind", "outputs"), [c for c in FITTING if issubclass(regtta.METHODS[c[0]], GradientMethod)]
)
def test_the_loss_falls_on_a_stationary_shifted_stream(name, kind, outputs):
    case = Case(name, kind, outputs)
    adapter = case.adapter(lr=1e-2 if case.method.optimizer == "adam" else case.method.lr)
    losses = [step.diagnostics.loss for step in adapter.run(case.stream(50, 24))]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


@every_case
def test_float32_and_float64_agree(name, kind, outputs):
    single, double = Case(name, kind, outputs), Case(name, kind, outputs, torch.float64)
    a = torch.cat([step.predictions for step in single.adapter().run(single.stream(3))])
    b = torch.cat([step.predictions for step in double.adapter().run(double.stream(3))])
    torch.testing.assert_close(a.double(), b, rtol=1e-2, atol=1e-3)


@every_case
def test_a_last_batch_of_another_size(name, kind, outputs):
    case = Case(name, kind, outputs)
    stream = [*case.stream(2, 12), *case.stream(1, 5)]
    steps = list(case.adapter().run(stream))
    assert [tuple(step.predictions.shape) for step in steps] == [(12, outputs), (12, outputs), (5, outputs)]
    assert all(step.predictions.isfinite().all() for step in steps)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@every_case
def test_cpu_and_gpu_agree(name, kind, outputs):
    case = Case(name, kind, outputs)
    there = copy.deepcopy(case)
    there.model = there.model.cuda()
    here = torch.cat([step.predictions for step in case.adapter().run(case.stream(3))])
    gpu = torch.cat([step.predictions for step in there.adapter().run(case.stream(3))])
    assert gpu.is_cuda
    torch.testing.assert_close(gpu.cpu(), here, rtol=1e-2, atol=1e-3)


def test_no_two_methods_predict_the_same():
    finals = {}
    for name in regtta.METHODS:
        case = Case(name, "mlp", 1)
        adapter = case.adapter()
        list(adapter.run(case.stream()))
        finals[name] = adapter.predict(case.stream()[0])
    names = list(finals)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert not torch.allclose(finals[a], finals[b], rtol=1e-6, atol=1e-8), (a, b)


def test_every_hyperparameter_changes_something_or_is_refused():
    """An option that does nothing is a lie: each choice of each option gives other predictions."""
    variants = {
        "k": 2,
        "weighting": False,
        "metric": "w2",
        "unbiased": False,
        "lr": 0.05,
        "optimizer": "sgd",
        "batch_norm": "debiased",
        "trainable": "extractor",
        "steps": 3,
    }
    for name, cls in regtta.METHODS.items():
        for field in dataclasses.fields(cls):
            if field.name == "clip":  # does something only beyond the rank: see the methods' own tests
                continue
            case = Case(name, "mlp", 1)
            adapters = case.adapter(), case.adapter(**{field.name: variants[field.name]})
            for adapter in adapters:
                list(adapter.run(case.stream()))
            x = case.stream()[0]
            assert not torch.equal(adapters[0].predict(x), adapters[1].predict(x)), (name, field.name)
