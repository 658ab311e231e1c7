import json

import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from regtta.errors import BatchError, OptionError
from regtta.report.analysis import compute_features, shift_report


def kl(mean, variance, mean0, variance0):
    """Return KL(p‖q) of two Gaussians."""
    return (np.log(variance0 / variance) + (variance + (mean - mean0) ** 2) / variance0 - 1) / 2


def test_moments_and_divergences_are_numpys(case):
    report = shift_report(case.source, {"before": case.before, "after": case.after}, k=5)
    variances = small_models.numpy64(case.source.variances[:5])
    for name, features in (("before", case.before), ("after", case.after)):
        z = (small_models.numpy64(features) - small_models.numpy64(case.source.mean)) @ small_models.numpy64(
            case.source.basis[:, :5]
        )
        mean, variance = z.mean(axis=0), z.var(axis=0, ddof=1)
        assert report.means[name] == pytest.approx(mean / variances**0.5, rel=1e-9, abs=1e-12)
        assert report.spreads[name] == pytest.approx((variance / variances) ** 0.5, rel=1e-9)
        expected = kl(mean, variance, 0, variances) + kl(0, variances, mean, variance)
        assert report.divergences[name] == pytest.approx(expected, rel=1e-7, abs=1e-9)
        assert report.total(name) == pytest.approx(expected.sum())
    assert report.counts == {"before": 200, "after": 200}
    assert report.total("after") < report.total("before")


def test_the_source_itself_has_no_shift(case):
    report = shift_report(case.source, {"source": case.source_features})
    rank = case.source.rank
    assert report.means["source"] == pytest.approx(np.zeros(rank), abs=1e-5)
    assert report.spreads["source"] == pytest.approx(np.ones(rank), abs=1e-5)
    assert report.divergences["source"] == pytest.approx(np.zeros(rank), abs=1e-8)


def test_a_known_shift_is_found_along_its_direction_only(case):
    sd = case.source.variances[1].sqrt()
    moved = case.source_features.double() + 2 * sd * case.source.basis[:, 1]
    report = shift_report(case.source, {"moved": moved}, k=4)
    assert report.means["moved"] == pytest.approx([0, 2, 0, 0], abs=1e-5)
    assert report.divergences["moved"] == pytest.approx([0, 4, 0, 0], abs=1e-4)  # (m² / s₀ + m² / s) / 2


def test_k_beyond_the_rank_is_clipped_without_a_warning(caplog):
    model = small_models.mlp(width=12)
    few = regtta.collect(model, [small_models.table(4)])  # four rows span three directions
    features = compute_features(model, [small_models.table(9, seed=3)], few.head)
    caplog.clear()  # collecting warned of four samples
    report = shift_report(few, {"x": features}, k=100)
    assert len(report.means["x"]) == few.rank == 3
    assert caplog.records == []


def test_a_constant_direction_is_infinitely_far_and_null_in_json(case):
    report = shift_report(case.source, {"still": case.before[:1].repeat(4, 1)}, k=2)
    assert report.spreads["still"].tolist() == [0, 0]
    assert report.total("still") == np.inf
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["divergences"] == {"still": [None, None]}


@pytest.mark.parametrize("k", [0, -3, 2.0])
def test_an_invalid_k_is_rejected(case, k):
    with pytest.raises(OptionError, match="k"):
        shift_report(case.source, {"x": case.before}, k=k)


@pytest.mark.parametrize("spoilt", ["nan", "one row", "narrow"])
def test_invalid_features_are_rejected_by_name(case, spoilt):
    rows = {
        "nan": torch.where(torch.arange(200)[:, None] == 7, torch.nan, case.before),
        "one row": case.before[:1],
        "narrow": case.before[:, :3],
    }[spoilt]
    with pytest.raises(BatchError, match="shape" if spoilt == "narrow" else "the features 'after'"):
        shift_report(case.source, {"before": case.before, "after": rows})
