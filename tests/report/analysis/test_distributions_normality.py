import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from helpers import small_models
from regtta.errors import BatchError
from regtta.report.analysis import compute_shapes, normality_report


def columns(count=150, seed=0):
    draw = np.random.default_rng(seed)
    return np.stack(
        [
            draw.normal(3, 2, count),
            draw.exponential(size=count),
            np.maximum(draw.normal(size=count), 0),  # half of it tied at zero, as after a ReLU
            draw.uniform(size=count),
        ],
        axis=1,
    )


@pytest.mark.parametrize("count", [2, 3, 150])
def test_agrees_with_scipy(count):
    values = columns(count)
    values[:, 2][values[:, 2] == 0] += 0 if count > 3 else np.arange((values[:, 2] == 0).sum())
    shapes = compute_shapes(torch.from_numpy(values))
    assert shapes.skewness == pytest.approx(stats.skew(values), abs=1e-12)
    assert shapes.kurtosis == pytest.approx(stats.kurtosis(values), abs=1e-12)
    expected = [stats.kstest(x, "norm", args=(x.mean(), x.std(ddof=1))).statistic for x in values.T]
    assert shapes.distance == pytest.approx(expected, abs=1e-12)


@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-100, 100))
def test_shapes_do_not_depend_on_scale_and_location(scale, shift):
    values = torch.from_numpy(columns())
    one, other = compute_shapes(values), compute_shapes(values * scale + shift)
    for name in ("skewness", "kurtosis", "distance"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-6)


def test_a_constant_column_has_no_shape():
    shapes = compute_shapes(torch.full((10, 1), 0.1))
    assert [math.isnan(float(value)) for value in (shapes.skewness[0], shapes.kurtosis[0], shapes.distance[0])] == [
        True,
        True,
        True,
    ]


def test_report_compares_raw_with_projected_dimensions(case):
    report = normality_report(case.source, case.before, k=5)
    rows = small_models.numpy64(case.before)
    raw = rows[:, rows.std(axis=0) > 0]
    projected = (rows - small_models.numpy64(case.source.mean)) @ small_models.numpy64(case.source.basis[:, :5])
    distances = [
        [stats.kstest(x, "norm", args=(x.mean(), x.std(ddof=1))).statistic for x in table.T]
        for table in (raw, projected)
    ]
    assert report.raw.distance == pytest.approx(distances[0], abs=1e-9)
    assert report.projected.distance == pytest.approx(distances[1], abs=1e-9)
    assert report.raw_summary.distance == pytest.approx(np.median(distances[0]))
    assert report.raw_summary.skewness == pytest.approx(np.median(np.abs(stats.skew(raw))))
    assert report.projected_summary.kurtosis == pytest.approx(np.median(np.abs(stats.kurtosis(projected))))
    # The probability is the Mann–Whitney statistic over the number of pairs.
    pairs = len(distances[0]) * len(distances[1])
    assert report.nearer == pytest.approx(stats.mannwhitneyu(distances[0], distances[1]).statistic / pairs)
    assert report.critical == pytest.approx(0.886 / math.sqrt(200))
    assert report.projected_summary.gaussian_share == np.mean(np.array(distances[1]) <= report.critical)
    assert (report.raw_summary.dimensions, report.projected_summary.dimensions) == (raw.shape[1], 5)
    json.dumps(report.to_dict(), allow_nan=False)


def test_samples_of_a_gaussian_exceed_the_critical_distance_about_once_in_twenty():
    values = torch.randn(400, 600, generator=torch.Generator().manual_seed(0))
    beyond = (compute_shapes(values).distance > 0.886 / math.sqrt(400)).mean()
    assert 0.02 < beyond < 0.08


def test_the_claim_can_be_false(case):
    """Gaussian rows that are transformed along the directions have the less Gaussian projections."""
    draw = torch.Generator().manual_seed(0)
    coordinates = torch.rand(400, 12, generator=draw, dtype=torch.float64).pow(6)
    bent = case.source.mean + coordinates @ case.source.basis.T
    assert normality_report(case.source, bent).nearer < 0.5


def test_constant_features_have_no_verdict(case):
    report = normality_report(case.source, case.before[:1].repeat(3, 1))
    assert report.raw_summary.dimensions == 0
    assert report.to_dict()["nearer"] is None
    assert report.to_dict()["raw_summary"]["gaussian_share"] is None


@pytest.mark.parametrize("spoil", [torch.inf, torch.nan])
def test_non_finite_features_are_rejected(case, spoil):
    broken = case.before.clone()
    broken[0, 3] = spoil
    with pytest.raises(BatchError, match="200 rows, 1 of them not finite"):
        normality_report(case.source, broken)
