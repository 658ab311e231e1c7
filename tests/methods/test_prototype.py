import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of
from regtta.errors import ModelError


def test_worked_example():
    # w0 = (2, 0, 0, 0), features sum to (6, 6, 3, 6): the mean of four vectors is (2, 1.5, 0.75, 1.5).
    head = head_of([2.0, 0.0, 0.0, 0.0])
    mean = torch.tensor([[2.0, 1.5, 0.75, 1.5]], dtype=torch.float64)
    plain = regtta.Prototype(rescale=False).start(context_of(head)).update(batch_of())
    torch.testing.assert_close(plain.weight, mean)
    assert plain.bias is None
    scaled = regtta.Prototype().start(context_of(head)).update(batch_of())
    torch.testing.assert_close(scaled.weight, 2 * mean / mean.norm())


def test_the_mean_accumulates_over_batches():
    head = head_of([2.0, 1.0, 0.0, -1.0])
    features = torch.randn(20, 4, dtype=torch.float64)
    rule = regtta.Prototype(rescale=False).start(context_of(head))
    for part in features.split(7):
        update = rule.update(batch_of(part))
    expected = torch.cat([head.weight.detach(), features]).numpy().mean(axis=0)
    assert update.weight[0].tolist() == pytest.approx(expected.tolist())


def test_bias_and_norm_are_preserved():
    model = small_models.mlp()
    adapter = regtta.Adapter(model, regtta.Prototype())
    list(adapter.run(small_models.table(40, shift=1.0).split(10)))
    adapted = adapter.export()
    assert torch.equal(adapted[6].bias, model[6].bias)
    assert not torch.allclose(adapted[6].weight, model[6].weight)
    torch.testing.assert_close(adapted[6].weight.norm(), model[6].weight.norm())


def test_several_outputs_raise():
    with pytest.raises(ModelError, match="gives 2 outputs"):
        regtta.Prototype().start(context_of(head_of([1.0] * 4, [0.0] * 4)))


# --- heads whose weight is computed -----------------------------------------------------------------


@pytest.fixture(params=["plain", "parametrized", "over all", "older kind"])
def model(request):
    """Return an MLP whose head has a plain weight, or one computed from its norm and direction."""
    model = small_models.mlp()
    if request.param == "older kind":
        with pytest.warns(FutureWarning, match="weight_norm"):
            nn.utils.weight_norm(model[6])
        with torch.no_grad():
            model(small_models.table(2))  # else the weight is no leaf, and the model cannot be copied
    elif request.param != "plain":
        parametrizations.weight_norm(model[6], dim=0 if request.param == "parametrized" else None)
    return model


def assert_same_tensors(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_the_head_is_replaced_with_and_without_parametrization(model):
    began, x = copy.deepcopy(model.state_dict()), small_models.table(60, shift=1.0)
    adapter = regtta.Adapter(model, regtta.Prototype())
    with torch.no_grad():
        weight = model[6].weight.clone()
    total, seen = weight[0].clone(), 1
    for batch in x.split(20):
        assert adapter.adapt(batch).diagnostics.verdict.learned
        with torch.no_grad():
            total, seen = total + model[:6](batch).sum(dim=0), seen + 20
            expected = model[:6](x) @ (weight.norm() * total / total.norm()) + model[6].bias
        torch.testing.assert_close(adapter.predict(x).squeeze(1), expected)
    assert (expected - model(x).squeeze(1)).abs().max() > 0.1
    exported = adapter.export()
    torch.testing.assert_close(exported(x).squeeze(1), expected)
    assert type(exported[6]) is type(model[6])
    assert exported.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(adapter.source_head().weight, weight)
    assert adapter.provenance().learned == 3
    assert_same_tensors(model.state_dict(), began)


def test_reset_state_and_rejection_are_exact_with_and_without_parametrization(model):
    class Odd(regtta.guards.Guard):
        """Refuses every second step."""

        def after_step(self, outcome):
            Odd.asked += 1
            return "refused" if Odd.asked % 2 == 0 else None

    Odd.asked = 0
    stream = small_models.table(100, shift=1.0).split(20)
    adapter, spared = (
        regtta.Adapter(model, regtta.Prototype(), guards=[Odd()]),
        regtta.Adapter(model, regtta.Prototype()),
    )
    first = adapter.predict(stream[0])
    for number, batch in enumerate(stream):
        before = adapter.export().state_dict()
        step = adapter.adapt(batch)
        if number % 2:
            assert step.diagnostics.verdict.reason == "refused"
            assert_same_tensors(adapter.export().state_dict(), before)
        else:
            spared.adapt(batch)
        head = adapter.model[6]
        torch.testing.assert_close(adapter.predict(batch), adapter.features(batch) @ head.weight.T + head.bias)
        assert_same_tensors(adapter.export().state_dict(), spared.export().state_dict())
    resumed = regtta.Adapter(model, regtta.Prototype(), guards=[Odd()], head="6")
    resumed.load_state_dict(adapter.state_dict())
    assert torch.equal(resumed.predict(stream[0]), adapter.predict(stream[0]))
    for back in (adapter.rollback, adapter.reset):
        back()
        assert torch.equal(adapter.predict(stream[0]), first)
        assert_same_tensors(adapter.export().state_dict(), model.state_dict())
        assert torch.equal(adapter.model[6].weight, model[6].weight)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (parametrizations.spectral_norm, "_SpectralNorm, which gives another value than the one that was set"),
        (parametrizations.orthogonal, "_Orthogonal, which"),
        (
            lambda head: parametrize.register_parametrization(head, "weight", Doubled()),
            "Doubled, which cannot be inverted",
        ),
        (lambda head: prune.l1_unstructured(head, "weight", 0.5), "in a way that regtta does not support"),
    ],
    ids=["spectral", "orthogonal", "not invertible", "pruned"],
)
def test_a_head_whose_weight_cannot_be_assigned_raises_at_the_start(change, why):
    model = small_models.mlp()
    change(model[6])
    with torch.no_grad():
        model(small_models.table(2))
    with pytest.raises(regtta.errors.ModelError, match=f"weight can be replaced.*{why}.*such as ssa"):
        regtta.Adapter(model, regtta.Prototype(), head="6")
