import math

import numpy as np
import pytest
import torch
from scipy import stats

import regtta
from helpers import small_models
from regtta.report.analysis import weight_correlation


@pytest.mark.parametrize("outputs", [1, 3])
def test_agrees_with_scipy_on_an_eigendecomposition_by_numpy(outputs):
    model = small_models.mlp(outputs=outputs)
    source = regtta.collect(model, small_models.table(300).split(50))
    head = dict(model.named_modules())[source.head]
    captured = []
    hook = head.register_forward_pre_hook(lambda _, inputs: captured.append(inputs[0].detach().double().numpy()))
    model.eval()(small_models.table(300))
    hook.remove()
    values, vectors = np.linalg.eigh(np.cov(captured[0].T))
    order = np.argsort(values)[::-1][:4]
    alpha = 1 + np.linalg.norm(head.weight.detach().double().numpy() @ vectors[:, order], axis=0)
    expected = stats.pearsonr(values[order], alpha).statistic
    assert weight_correlation(source, head.weight, k=4) == pytest.approx(expected, rel=1e-4)


def test_k_beyond_the_dimensions_means_all_directions():
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(100).split(50))
    weight = dict(model.named_modules())[source.head].weight
    assert weight_correlation(source, weight, k=10_000) == weight_correlation(source, weight, k=source.dimensions)


def test_constant_weights_have_no_correlation():
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(100).split(50))
    assert math.isnan(weight_correlation(source, torch.zeros(1, source.dimensions)))
