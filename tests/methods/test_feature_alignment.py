import logging

import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of, source_of
from regtta.errors import OptionError
from regtta.methods.feature_alignment import largest_variance_dimensions


def with_dead_features():
    model = small_models.mlp(2)
    with torch.no_grad():
        model[4].weight[:3] = 0
        model[4].bias[:3] = -1
    return model, regtta.collect(model, small_models.table(400).split(50))


@pytest.mark.parametrize("weighting", [True, False])
@pytest.mark.parametrize("k", [None, 4])
def test_loss_against_numpy(k, weighting):
    model, source = with_dead_features()
    inputs = small_models.table(30, shift=0.4, seed=8)
    with torch.no_grad():
        sources, targets = (small_models.numpy64(model[:6](x)) for x in (small_models.table(400), inputs))
    mean, variance = sources.mean(0), sources.var(0, ddof=1)
    dims = np.argsort(-variance, kind="stable")
    dims = dims[variance[dims] > 0][:k]
    alpha = 1 + np.linalg.norm(small_models.numpy64(model[6].weight)[:, dims], axis=0) if weighting else 1
    m, s = targets.mean(0)[dims], targets.var(0, ddof=1)[dims]
    gap = (m - mean[dims]) ** 2
    expected = 0.5 * (alpha * ((gap + s) / variance[dims] + (gap + variance[dims]) / s - 2)).sum()
    method = regtta.FeatureAlignment(k=k, weighting=weighting, batch_norm="source")
    step = regtta.Adapter(model, method, source).adapt(inputs)
    assert step.diagnostics.loss == pytest.approx(expected, rel=1e-4)


def test_worked_example_of_three_samples():
    # Source means (1, 0, 0, 0), variances (4, 3, 2, 0): the last axis is constant and excluded. The batch's means are
    # (2, 2, 1), its variances (1, 12, 1). The head's weights are (2, 0, −1, 5): alpha (3, 1, 2).
    # ((1 + 1)/4 + (1 + 4)/1 − 2)/2 = 1.75, (16/3 + 7/12 − 2)/2 = 1.958333, (2/2 + 3/1 − 2)/2 = 1.
    points = torch.diag(torch.tensor([4.0, 3.0, 2.0]).mul(2.5).sqrt()).double()
    points = torch.nn.functional.pad(torch.cat([points, -points]), (0, 1))
    source = source_of(points + torch.tensor([1.0, 0, 0, 0]))
    rule = regtta.FeatureAlignment().start(context_of(head_of([2.0, 0.0, -1.0, 5.0]), source))
    assert rule.update(batch_of()).item() == pytest.approx(3 * 1.75 + 1.9583333333 + 2 * 1)


def test_dimensions_of_largest_variance_are_selected_and_constant_ones_excluded(caplog):
    _, source = with_dead_features()
    order = largest_variance_dimensions(source, None, clip=True)
    assert len(order) == source.valid_dimensions == 9
    assert (source.feature_variances[order].diff() <= 0).all()
    assert not {0, 1, 2} & set(order.tolist())
    assert largest_variance_dimensions(source, 4, clip=True).tolist() == order[:4].tolist()
    assert len(largest_variance_dimensions(source, None, clip=False)) == 12
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "regtta"):
        assert len(largest_variance_dimensions(source, 10, clip=True)) == 9
    assert "k=10 exceeds the 9 valid dimensions" in caplog.text


def test_constant_dimensions_diverge_without_clipping():
    model, source = with_dead_features()
    adapter = regtta.Adapter(model, regtta.FeatureAlignment(clip=False), source)
    step = adapter.adapt(small_models.table(20, shift=1.0))
    assert not np.isfinite(step.diagnostics.loss)
    assert not step.diagnostics.verdict.learned


def test_invalid_k():
    model, source = with_dead_features()
    with pytest.raises(OptionError, match="between 1 and 12, the width of the features, found 13"):
        regtta.Adapter(model, regtta.FeatureAlignment(k=13, clip=False), source)
    with pytest.raises(OptionError, match="k to be a whole number"):
        regtta.FeatureAlignment(k=0)
    with pytest.raises(OptionError, match="metric to be one of"):
        regtta.FeatureAlignment(metric="mmd")
