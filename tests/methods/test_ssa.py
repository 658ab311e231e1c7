import logging

import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of as by_hand_batch
from helpers.method_inputs import context_of, head_of, source_of
from regtta.errors import OptionError
from regtta.methods import Batch, MethodContext
from regtta.methods.alignment import significance
from regtta.models.features import FeatureModel
from regtta.persistence import to_dict
from regtta.statistics import SourceStatistics


def start(method, outputs=1, dtype=torch.float32):
    model = small_models.mlp(outputs)
    source = regtta.collect(model, small_models.table(400).split(50))
    model = model.to(dtype)
    return model, source, method.start(MethodContext(model, model[6], source))


def batch_of(model, inputs):
    forward = FeatureModel(model, "6")
    out = forward(inputs)
    return Batch(inputs, out.features, out.outputs, None, forward)


def loss_by_hand(features, weight, source, k, *, weighting, metric, unbiased):
    """Return equations 6 to 8 of the paper, computed by numpy."""
    covariance = small_models.numpy64(source.covariance())
    values, vectors = np.linalg.eigh(covariance)
    lam, V = values[::-1][:k], vectors[:, ::-1][:, :k].T  # V is (k, D), as in the paper
    alpha = 1 + np.linalg.norm(weight @ V.T, axis=0) if weighting else np.ones(k)
    projected = (V @ (features - small_models.numpy64(source.mean)).T).T
    m, s = projected.mean(0), projected.var(0, ddof=1 if unbiased else 0)
    if metric == "kl":
        there = 0.5 * (np.log(s / lam) + (m**2 + lam) / s - 1)
        back = 0.5 * (np.log(lam / s) + (m**2 + s) / lam - 1)
        return (alpha * (there + back)).sum()
    if metric == "w2":
        return (alpha * (m**2 + (np.sqrt(s) - np.sqrt(lam)) ** 2)).sum()
    return (alpha * (np.abs(m) + np.abs(np.sqrt(s) - np.sqrt(lam)))).sum()


@pytest.mark.parametrize("metric", ["kl", "w2", "l1"])
@pytest.mark.parametrize("weighting", [True, False])
@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
def test_loss_is_that_of_the_paper(metric, weighting, unbiased, outputs):
    method = regtta.SSA(k=4, metric=metric, weighting=weighting, unbiased=unbiased)
    model, source, rule = start(method, outputs, torch.float64)
    batch = batch_of(model, small_models.table(30, shift=0.7, seed=5).double())
    expected = loss_by_hand(
        small_models.numpy64(batch.features),
        small_models.numpy64(model[6].weight),
        source,
        4,
        weighting=weighting,
        metric=metric,
        unbiased=unbiased,
    )
    assert rule.update(batch).item() == pytest.approx(expected, rel=1e-6)
    single_model, _, single = start(method, outputs, torch.float32)
    loss = single.update(batch_of(single_model, small_models.table(30, shift=0.7, seed=5)))
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_worked_example_of_two_samples():
    # Source: variance 4 along x, 1 along y, mean 0. Head: y = 2x. Batch: x in {1, 3}, y in {-1, 1}.
    head = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[2.0, 0.0]]))
    points = torch.tensor([[6.0, 0.0], [-6.0, 0.0], [0.0, 3.0], [0.0, -3.0]], dtype=torch.float64) / 18**0.5
    points *= 3**0.5
    source = regtta.collect(nn.Sequential(head).double(), [points])
    assert source.variances.tolist() == pytest.approx([4.0, 1.0])
    rule = regtta.SSA(k=2).start(MethodContext(head, head, source))
    features = torch.tensor([[1.0, -1.0], [3.0, 1.0]], dtype=torch.float64)
    # x: mean 2, variance 2, alpha 3: 3/2 ((4+2)/4 + (4+4)/2 - 2) = 5.25
    # y: mean 0, variance 2, alpha 1: 1/2 (2/1 + 1/2 - 2) = 0.25
    batch = Batch(features, features, features, None, lambda x: x)
    assert rule.update(batch).item() == pytest.approx(5.5)


def test_worked_example_of_three_samples():
    # Source: independent axes with variances 4, 3, 2 and 0, mean 0; so the first three axes are the subspace.
    # The batch has means (2, 2, 1) and variances (1, 12, 1) there. The head is 3 on the second axis: alpha (1, 4, 1).
    # Each axis gives ((m² + s)/λ + (m² + λ)/s − 2)/2: (5/4 + 8/1 − 2)/2 = 3.625, (16/3 + 7/12 − 2)/2 = 1.958333,
    # (2/2 + 3/1 − 2)/2 = 1.
    points = torch.diag(torch.tensor([4.0, 3.0, 2.0]).mul(2.5).sqrt()).double()  # 6 points: divide by 5
    points = torch.nn.functional.pad(torch.cat([points, -points]), (0, 1))
    source = source_of(points)
    assert source.variances.tolist() == pytest.approx([4, 3, 2, 0])
    rule = regtta.SSA(k=4).start(context_of(head_of([0.0, 3.0, 0.0, 0.0]), source))
    assert rule.update(by_hand_batch()).item() == pytest.approx(3.625 + 4 * 1.9583333333 + 1)


def test_significance_of_several_outputs():
    weight, basis = torch.randn(3, 6, dtype=torch.float64), torch.linalg.qr(torch.randn(6, 6).double())[0]
    expected = [1 + np.linalg.norm(weight.numpy() @ basis[:, d].numpy()) for d in range(6)]
    np.testing.assert_allclose(significance(weight @ basis), expected, rtol=1e-12)
    single = significance(weight[:1] @ basis)
    np.testing.assert_allclose(single, 1 + np.abs((weight[0] @ basis).numpy()), rtol=1e-12)


def test_gradients_through_the_model_agree_with_finite_differences():
    model, _, rule = start(regtta.SSA(k=3), dtype=torch.float64)
    inputs = small_models.table(12, shift=0.5, seed=3).double()
    parameter = model[4].bias

    def loss(bias):
        with torch.no_grad():
            parameter.copy_(bias)
        return rule.update(batch_of(model, inputs))

    base = parameter.detach().clone()
    (gradient,) = torch.autograd.grad(loss(base), parameter)
    step = 1e-6
    for index in range(len(base)):
        up, down = base.clone(), base.clone()
        up[index] += step
        down[index] -= step
        numeric = (loss(up).item() - loss(down).item()) / (2 * step)
        assert gradient[index].item() == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_k_above_the_rank_is_clipped_with_a_warning_or_diverges_without_clip(caplog):
    model = small_models.mlp()
    with torch.no_grad():  # two dead features: the rank is at most 10 of 12
        model[4].weight[:2] = 0
        model[4].bias[:2] = -1
    source = regtta.collect(model, small_models.table(400).split(50))
    assert source.rank <= 10
    with caplog.at_level(logging.WARNING, "regtta"):
        clipped = regtta.Adapter(model, regtta.SSA(k=12, clip=True), source)
    assert f"k=12 is beyond the rank {source.rank}" in caplog.text
    automatic = regtta.Adapter(model, regtta.SSA(k="auto"), source)
    inputs = small_models.table(20, shift=1.0)
    losses = [a.adapt(inputs).diagnostics.loss for a in (clipped, automatic)]
    assert losses[0] == losses[1]
    assert np.isfinite(losses[0])

    step = regtta.Adapter(model, regtta.SSA(k=12, clip=False), source).adapt(inputs)
    assert not np.isfinite(step.diagnostics.loss)
    assert step.diagnostics.verdict.reason == "the loss is not finite"
    assert step.predictions.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k to be a whole number"),
        ({"k": 2.5}, "k to be a whole number"),
        ({"metric": "mmd"}, r"metric to be one of \['kl', 'l1', 'w2'\]"),
        ({"lr": 0}, "lr to be a number above 0"),
        ({"steps": 0}, "steps to be a whole number"),
        ({"optimizer": "adan"}, "Did you mean 'adam'"),
        ({"batch_norm": "train"}, "batch_norm to be one of"),
        ({"trainable": "none"}, "trainable to be one of"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(OptionError, match=message):
        regtta.SSA(**options)


def test_k_larger_than_the_number_of_features():
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    with pytest.raises(OptionError, match="between 1 and 12, the width of the features, found 13"):
        regtta.Adapter(model, regtta.SSA(k=13, clip=False), source)


def test_free_output_does_not_penalise_a_shift_of_the_output():
    """Only the shift Σ w moves the output and no direction that is uncorrelated with it."""
    method = regtta.SSA(k="auto", free_output=True)
    model, source, rule = start(method, dtype=torch.float64)
    batch = batch_of(model, small_models.table(60, seed=5).double())
    weight = model[6].weight.detach()[0]
    along = source.covariance() @ weight

    def loss(shift):
        moved = batch.features.detach() + shift
        return rule.update(Batch(batch.inputs, moved, batch.outputs, None, batch.forward)).item()

    assert loss(5 * along) == pytest.approx(loss(0 * along), rel=1e-6)
    assert loss(5 * torch.ones_like(along)) > 2 * loss(0 * along)
    _, _, held = start(regtta.SSA(k="auto"), dtype=torch.float64)
    features = batch.features.detach() + 5 * along / (along @ weight).sqrt()
    assert held.update(Batch(batch.inputs, features, batch.outputs, None, batch.forward)) > 10


def test_free_output_requires_another_direction():
    with pytest.raises(OptionError, match="Pass a larger k"):
        start(regtta.SSA(k=1, free_output=True))


# --- defaults, and directions that are admitted ---------------------------------------------------


def source_with(variances, mean=0.0):
    """Create statistics with the given spectrum along the axes."""
    variances = torch.tensor(variances, dtype=torch.float64)
    count = len(variances)
    return SourceStatistics(
        mean=torch.full((count,), mean, dtype=torch.float64),
        variances=variances,
        basis=torch.eye(count, dtype=torch.float64),
        feature_variances=variances,
        count=1000,
        head="head",
        fingerprint="",
    )


def test_defaults_and_the_settings_of_the_paper():
    ssa, paper = regtta.SSA(), regtta.SSA.from_paper()
    assert (ssa.k, ssa.clip, ssa.batch_norm, ssa.bn_momentum, ssa.lr) == (100, "null", "debiased", 0.02, 1e-3)
    assert (paper.k, paper.clip, paper.batch_norm, paper.bn_momentum, paper.lr) == (100, False, "batch", None, 1e-3)
    assert regtta.SSA.from_paper(k=3, clip=True, lr=0.1) == regtta.SSA(
        k=3, clip=True, lr=0.1, batch_norm="batch", bn_momentum=None
    )


def test_descriptions_leave_the_momentum_out_where_it_is_that_of_the_layers():
    assert "bn_momentum" not in to_dict(regtta.SSA.from_paper())
    assert to_dict(regtta.SSA())["bn_momentum"] == 0.02
    assert "bn_momentum" not in to_dict(regtta.FeatureAlignment())
    assert to_dict(regtta.FeatureAlignment(bn_momentum=0.02))["bn_momentum"] == 0.02


@pytest.mark.parametrize("momentum", [0.0, -0.1, 1.1, float("nan"), "0.1", True])
@pytest.mark.parametrize("method", [regtta.SSA, regtta.BNAdapt])
def test_momenta_outside_of_0_to_1_are_errors(method, momentum):
    with pytest.raises(OptionError, match="bn_momentum to be None or a number above 0 and at most 1"):
        method(bn_momentum=momentum)
    assert method(bn_momentum=1).schedule.bn_momentum == 1


@pytest.mark.parametrize(("text", "value"), [("null", "null"), ("true", True), ("false", False)])
def test_clip_on_the_command_line(text, value):
    assert regtta.methods.method_options("ssa", [f"clip={text}", "bn_momentum=none"]) == {
        "clip": value,
        "bn_momentum": None,
    }


@pytest.mark.parametrize("clip", ["rank", None, 1])
def test_other_values_of_clip_are_errors(clip):
    with pytest.raises(OptionError, match="clip"):
        regtta.SSA(clip=clip)
    with pytest.raises(OptionError, match="clip to be True or False"):
        regtta.FeatureAlignment(clip="null")


def test_only_null_directions_are_excluded_by_default(caplog):
    epsilon = np.finfo(np.float32).eps
    source = source_with([1.0, 1e-6, 5.1 * epsilon**2, 4.9 * epsilon**2, 0.0])  # the threshold is 5 ε²
    assert (source.rank, source.numerical_rank) == (2, 3)
    with caplog.at_level(logging.WARNING, "regtta"):
        sizes = {clip: len(regtta.SSA(clip=clip).subspace(source).variances) for clip in ("null", True, False)}
    assert sizes == {"null": 3, True: 2, False: 5}
    assert not caplog.messages  # the default number of directions is reduced without a warning
    assert len(regtta.SSA(k=4).subspace(source).variances) == 3
    assert caplog.messages == ["k=4 is beyond the numerical rank 3 of the source features: using 3."]
    assert len(regtta.SSA(k="auto").subspace(source).variances) == 2


def test_a_large_mean_hides_small_variances():
    assert source_with([1.0, 1e-9, 1e-11]).numerical_rank == 3
    assert source_with([1.0, 1e-9, 1e-11], mean=30.0).numerical_rank == 2
    assert source_with([1.0, 1e-9, 1e-11], mean=1e12).numerical_rank == 1
    assert source_with([0.0, 0.0]).numerical_rank == 0
