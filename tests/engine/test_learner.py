"""A rejected or failed step leaves weights, buffers, optimizer, rule and counters unchanged."""

import functools
import random

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.states import assert_same
from methods.test_conformance import Case
from regtta.guards import FiniteStep, Guard, MarkGood, Rollback


class Pattern(Guard):
    """Rejects the steps with the given indices, counted over all calls."""

    def __init__(self, numbers=()):
        object.__setattr__(self, "numbers", set(numbers))
        object.__setattr__(self, "asked", 0)

    def after_step(self, outcome):
        object.__setattr__(self, "asked", self.asked + 1)
        return "by the pattern" if self.asked - 1 in self.numbers else None


class Odd(torch.optim.Optimizer):
    """Keeps lists, strings and nested tensors in its state, and decays its learning rate."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "history": []})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["norms"] = [*state.get("norms", []), float(p.grad.norm())]
                state["mode"] = "odd" if state.get("mode") != "odd" else "even"
                state.setdefault("buffers", {"slow": torch.zeros_like(p)})["slow"].add_(p.grad)
                p.add_(state["buffers"]["slow"], alpha=-group["lr"])
            group["lr"] *= 0.9
            group["history"].append(group["lr"])


OPTIMIZERS = {
    "adam": "adam",
    "adamw": "adamw",
    "sgd": "sgd",
    "rmsprop": "rmsprop",
    "momentum": functools.partial(torch.optim.SGD, momentum=0.9),
    "amsgrad": functools.partial(torch.optim.Adam, amsgrad=True),
    "nadam": torch.optim.NAdam,
    "odd": Odd,
}
MODELS = {"bn_adapt": "cnn", "ttt": "cnn", "variance_minimization": "cnn", "consistency": "cnn"}


def learner_of(adapter):
    return adapter.state_dict()["learner"] | {"learned": adapter.state_dict()["learned"]}


def check_vetoes(name, vetoed, *, kind=None, batches=7, size=12, **options):
    """Check that an adapter with some steps rejected equals one that never saw those batches."""
    kind = kind or MODELS.get(name, "mlp")
    case = Case(name, kind, 3 if name == "tent" else 1, **options)
    rejected, reference = case.adapter(guards=[Pattern(vetoed)]), case.adapter(guards=[Pattern()])
    vetoes = 0
    for x in case.stream(batches, size):
        before = rejected.predict(x)
        step = case.adapt(rejected, x)
        if step.diagnostics.verdict.reason == "by the pattern":
            vetoes += 1
            assert torch.equal(step.predictions, before)
        else:
            same = case.adapt(reference, x)
            assert torch.equal(step.predictions, same.predictions)
            assert step.diagnostics == same.diagnostics
        assert_same(learner_of(rejected), learner_of(reference))
    assert vetoes == len(vetoed)
    assert not any(module.training for module in rejected.model.modules())


def random_indices(seed, of=7):
    return set(random.Random(seed).sample(range(of), 3))


@pytest.mark.parametrize("name", [name for name in regtta.METHODS if name != "source"])
@pytest.mark.parametrize("vetoed", [{0}, random_indices(1), random_indices(2) | {0, 1}])
def test_rejected_steps_change_nothing_for_every_method(name, vetoed):
    check_vetoes(name, vetoed)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("vetoed", [{0, 1, 4}, {2, 3, 6}])
def test_rejected_steps_change_nothing_for_every_optimizer(optimizer, vetoed):
    check_vetoes("ssa", vetoed, optimizer=OPTIMIZERS[optimizer], lr=0.01)


@pytest.mark.parametrize("mode", ["batch", "debiased", "blended", "cumulative", "source"])
@pytest.mark.parametrize("trainable", ["affine", "bias", "extractor", "all"])
def test_rejected_steps_change_nothing_for_every_batch_norm_mode_and_trainable_set(mode, trainable):
    for name in ("ssa", "oracle"):
        check_vetoes(
            name, random_indices(hash((len(mode), len(trainable)))), batch_norm=mode, trainable=trainable, lr=0.01
        )


@pytest.mark.parametrize("size", [1, 3])
def test_rejected_steps_change_nothing_with_windows_and_small_batches(size):
    """The window contents and the blending counts are restored as well."""
    check_vetoes("ssa", {0, 4, 5}, kind="mlp", batches=16, size=size, window=4, batch_norm="blended", prior=2)


def test_rejected_steps_change_nothing_without_batch_norm():
    check_vetoes("ssa", {1, 2, 5}, kind="vit", trainable="extractor")


def test_rejected_steps_with_an_optimizer_that_adds_keys_to_its_groups():
    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            for group in self.param_groups:
                group["turns"] = group.get("turns", 0) + 1

    check_vetoes("ssa", {0, 1}, optimizer=Counting)


# --- failed steps ----------------------------------------------------------------------------------


def in_forward(adapter, error):
    def raise_error(*_):
        raise error

    return adapter.model[5].register_forward_hook(raise_error)


def in_backward(adapter, error):
    def attach(module, args, out):
        if out.requires_grad:

            def raise_error(_):
                raise error

            out.register_hook(raise_error)

    return adapter.model[2].register_forward_hook(attach)


class _Handle:
    def __init__(self, undo):
        self.remove = undo


def in_rule(adapter, error):
    rule = adapter._session.stream.learner.rule
    original = rule.update

    def raise_error(batch):
        original(batch)  # what the rule has already stored must be discarded
        raise error

    rule.update = raise_error
    return _Handle(lambda: rule.__dict__.pop("update"))


def in_optimizer(adapter, error):
    step = adapter._session.stream.learner._optimizer
    original = step._update

    def raise_error():
        original()
        raise error

    step._update = raise_error
    return _Handle(lambda: setattr(step, "_update", original))


@pytest.mark.parametrize("inject", [in_forward, in_backward, in_rule, in_optimizer], ids=lambda f: f.__name__)
@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("options", [{}, {"batch_norm": "debiased"}, {"batch_norm": "blended", "window": 20}], ids=str)
def test_a_failed_step_changes_nothing(inject, error, options):
    case = Case("ssa", "mlp", 1, lr=0.01, trainable="extractor", **options)
    faulted, reference = case.adapter(), case.adapter()
    *stream, bad = case.stream(6)
    for x in stream[:3]:
        assert torch.equal(faulted.adapt(x).predictions, reference.adapt(x).predictions)
    handle = inject(faulted, error)
    for _ in range(2):
        with pytest.raises(type(error)):
            faulted.adapt(bad)
    handle.remove()
    assert_same(faulted.state_dict() | {"begun": ""}, reference.state_dict() | {"begun": ""})
    assert not any(module.training for module in faulted.model.modules())
    assert not any(module._forward_pre_hooks for module in faulted.model.modules())
    for x in stream[3:]:
        a, b = faulted.adapt(x), reference.adapt(x)
        assert torch.equal(a.predictions, b.predictions)
        assert a.diagnostics == b.diagnostics


# --- several steps per batch -----------------------------------------------------------------------


@pytest.mark.parametrize("ruling", [MarkGood(), Rollback("enough", "source")], ids=["keep", "rollback"])
def test_rulings_on_later_steps_of_a_batch_are_applied(ruling):
    """``HealthCheck(every=8)`` with two steps per batch gives rulings only at a second step."""

    class Second(Pattern):
        def after_step(self, outcome):
            super().after_step(outcome)
            return ruling if self.asked == 2 else None

    case = Case("ssa", "mlp", 1, steps=2)
    adapter = case.adapter(guards=[Second()])
    step = adapter.adapt(case.stream(1)[0])
    assert bool(adapter.state_dict()["good"]) == isinstance(ruling, MarkGood)
    assert step.diagnostics.verdict.returned == ("" if isinstance(ruling, MarkGood) else "source")


def test_a_batch_enters_the_window_once_with_several_steps():
    case = Case("ssa", "mlp", 1, steps=3, window=16, batch_norm="source")
    adapter = case.adapter()
    for x in case.stream(8, 1):
        adapter.adapt(x)
    assert len(adapter.state_dict()["learner"]["rule"]["past"]) == 8


# --- non-finite values -----------------------------------------------------------------------------


class Square(nn.Module):
    def forward(self, x):
        return x**2


def test_learning_continues_after_an_overflow_while_the_window_fills():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), Square(), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 1))
    source = regtta.collect(model, small_models.table(400).split(50))
    adapter = regtta.Adapter(model, regtta.SSA(k=4, window=32), source)
    adapter.adapt(torch.full((1, 5), 1e30))  # finite, but its square overflows
    learned = [adapter.adapt(x).diagnostics.verdict.learned for x in small_models.table(200, seed=4).split(4)]
    assert any(learned)


def test_an_overflow_does_not_reach_the_running_statistics():
    case = Case("bn_adapt", "mlp", 1)
    adapter = case.adapter()
    x = case.stream(1)[0].clone()
    x[0] = 3e38
    adapter.adapt(x)
    assert adapter.predict(case.stream(1)[0]).isfinite().all()


@pytest.mark.parametrize("mode", ["batch", "debiased", "blended"])
def test_an_overflow_leaves_a_gradient_method_unchanged(mode):
    case = Case("ssa", "mlp", 1, batch_norm=mode)
    adapter = case.adapter(guards=[FiniteStep()])
    x = case.stream(1)[0].clone()
    x[0] = 3e38
    state = learner_of(adapter)
    assert adapter.adapt(x).diagnostics.verdict.reason == "the loss is not finite"
    assert_same(learner_of(adapter), state)
