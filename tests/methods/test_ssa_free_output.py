"""SSA(free_output=True), which aligns only directions that are uncorrelated with the output on the source."""

import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of
from regtta.errors import OptionError
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics

WIDTH = 6


def source_features(rows=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    return torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64) @ mix + 1.5


def head_of(outputs, seed=3):
    torch.manual_seed(seed)
    return nn.Linear(WIDTH, outputs).double()


def rule_of(head, z, **options):
    source = SourceStatistics.from_moments(Moments.from_features(z), head="", fingerprint="")
    return regtta.SSA(free_output=True, **({"k": "auto"} | options)).start(context_of(head, source))


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("k", [4, "auto"])
def test_aligned_directions_are_uncorrelated_with_every_output_and_of_unit_variance(outputs, k):
    z, head = source_features(), head_of(outputs)
    rule = rule_of(head, z, k=k)
    views = small_models.numpy64(rule.view(z))
    assert views.shape[1] == (WIDTH if k == "auto" else k) - outputs
    centred = small_models.numpy64(head(z) - head(z).mean(0))
    np.testing.assert_allclose(views.T @ centred / len(z), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(views.T).reshape(views.shape[1], -1), np.eye(views.shape[1]), atol=1e-9)
    np.testing.assert_allclose(views.mean(0), 0, atol=1e-12)


@pytest.mark.parametrize("rows", [[[1.0] * WIDTH, [1.0] * WIDTH], [[0.0] * WIDTH, [1.0] * WIDTH]])
def test_linearly_dependent_outputs_leave_more_directions(rows):
    head = head_of(2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor(rows))
    assert len(rule_of(head, source_features()).mean) == WIDTH - 1


@pytest.mark.parametrize("outputs", [1, 2])
def test_only_shifts_off_the_regression_line_of_the_outputs_are_penalised(outputs):
    """The line is the regression of features on outputs, along which a label shift moves the features."""
    z, head = source_features(), head_of(outputs)
    rule = rule_of(head, z, unbiased=True)
    covariance = torch.from_numpy(np.cov(z.numpy().T))
    along = (covariance @ head.weight.detach().T).T  # (O, D): Σ w
    at_home = rule.update(batch_of(z)).item()
    assert at_home == pytest.approx(0, abs=1e-9)
    for direction in along:
        moved = (z + 3 * direction / direction.norm()).requires_grad_()
        loss = rule.update(batch_of(moved))
        assert loss.item() == pytest.approx(0, abs=1e-9)
        (gradient,) = torch.autograd.grad(loss, moved)
        assert gradient.abs().max() < 1e-9
        plain = regtta.SSA(k="auto").start(
            context_of(head, SourceStatistics.from_moments(Moments.from_features(z), head="", fingerprint=""))
        )
        assert plain.update(batch_of(moved)).item() > 0.1
    # A shift that changes no output.
    orthogonal = torch.linalg.svd(head.weight.detach(), full_matrices=True)[2][-1]
    moved = (z + 3 * orthogonal).requires_grad_()
    torch.testing.assert_close(head(moved), head(z))
    loss = rule.update(batch_of(moved))
    assert loss.item() > 0.1
    (gradient,) = torch.autograd.grad(loss, moved)
    assert gradient.abs().max() > 1e-4


def test_loss_in_closed_form():
    """All whitened directions have weight 1: Σ ½((m²+1)/s + m² + s − 2)."""
    z, head = source_features(), head_of(2)
    rule = rule_of(head, z)
    x = source_features(50, seed=9) + 0.3
    values, vectors = np.linalg.eigh(np.cov(z.numpy().T))
    whiten = vectors / np.sqrt(values)
    effect = small_models.numpy64(head.weight) @ vectors * np.sqrt(values)
    projector = np.eye(WIDTH) - np.linalg.pinv(effect) @ effect
    free = np.linalg.eigh(projector)[1][:, 2:]
    y = (x.numpy() - z.numpy().mean(0)) @ whiten @ free
    # The loss depends on the basis, so that of the rule is used.
    turn = np.linalg.lstsq(y, small_models.numpy64(rule.view(x)), rcond=None)[0]
    np.testing.assert_allclose(turn.T @ turn, np.eye(WIDTH - 2), atol=1e-8)
    y = y @ turn
    m, s = y.mean(0), y.var(0, ddof=1)
    assert rule.update(batch_of(x)).item() == pytest.approx((((m**2 + 1) / s + m**2 + s - 2) / 2).sum(), rel=1e-8)


@pytest.mark.parametrize(("outputs", "k"), [(1, 1), (2, 2), (3, 2)])
def test_k_without_free_directions_raises(outputs, k):
    with pytest.raises(OptionError, match=f"along which the outputs vary.*found k={k}. Pass a larger k"):
        rule_of(head_of(outputs), source_features(), k=k)


def test_outputs_under_a_label_shift_are_preserved():
    """On source samples with large outputs, plain SSA reduces their mean, SSA with a free output hardly does."""
    model = small_models.mlp()
    inputs = small_models.table(4000)
    source = regtta.collect(model, inputs.split(500))
    with torch.no_grad():
        top = inputs[model(inputs).squeeze(1).argsort(descending=True)[:1600]]
        before = float(model(top).mean() - model(inputs).mean())
    left = {}
    for free in (False, True):
        method = regtta.SSA(k=8, free_output=free, batch_norm="source", lr=5e-3)
        adapter = regtta.Adapter(model, method, source)
        order = torch.randperm(1600, generator=torch.Generator().manual_seed(0))
        for x in top[order].split(32):
            assert adapter.adapt(x).diagnostics.verdict.learned
        left[free] = float(adapter.predict(top).mean() - model(inputs).mean().detach()) / before
    assert left[False] < 0.6
    assert left[True] > left[False] + 0.2
