import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import small_models
from regtta.errors import HeadMismatchError, OptionError
from regtta.report.analysis import subspace_report, weight_correlation
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics


def test_agrees_with_numpy_on_the_features_themselves(case):
    report = subspace_report(case.source, case.weight, k=4)
    features = small_models.numpy64(case.source_features)
    values, vectors = np.linalg.eigh(np.cov(features.T))
    values, vectors = values[::-1], vectors[:, ::-1]
    weight = small_models.numpy64(case.weight)
    assert report.variances == pytest.approx(values, rel=1e-5, abs=1e-9)
    assert report.cumulative == pytest.approx(values.cumsum() / values.sum(), rel=1e-5)
    # Directions are unique up to sign, as their variances differ.
    assert report.effects == pytest.approx(np.linalg.norm(weight @ vectors, axis=0), rel=1e-3, abs=1e-6)
    assert report.weights == pytest.approx(1 + report.effects)
    assert report.correlation == weight_correlation(case.source, case.weight, k=4)
    assert (report.count, report.dimensions, report.k) == (300, 12, 4)
    assert (report.rank, report.valid_dimensions) == (case.source.rank, case.source.valid_dimensions)
    json.dumps(report.to_dict(), allow_nan=False)


def test_shares_of_the_output_are_those_of_the_outputs_own_variance(case):
    """The share of a direction is the variance of the outputs that is lost without it."""
    report = subspace_report(case.source, case.weight)
    features, weight = small_models.numpy64(case.source_features), small_models.numpy64(case.weight)
    whole = np.var(features @ weight.T, axis=0, ddof=1).sum()
    for d in range(3):
        v = small_models.numpy64(case.source.basis[:, d])
        without = features - np.outer(features @ v, v)
        lost = whole - np.var(without @ weight.T, axis=0, ddof=1).sum()
        assert report.output_shares[d] == pytest.approx(lost / whole, rel=1e-5, abs=1e-9)


@given(share=st.floats(0.01, 1.0))
def test_the_carrying_directions_are_the_smallest_set_with_the_share(case, share):
    report = subspace_report(case.source, case.weight, share=share)
    carried = report.output_shares[list(report.carrying)]
    assert carried.sum() >= share - 1e-9
    assert carried[:-1].sum() < share
    assert carried.tolist() == sorted(report.output_shares, reverse=True)[: len(carried)]


def test_constant_features_carry_nothing():
    source = SourceStatistics.from_moments(Moments.from_features(torch.ones(10, 12)), head="6", fingerprint="")
    report = subspace_report(source, torch.zeros(1, 12))
    assert report.carrying == ()
    assert report.to_dict()["output_shares"] == [None] * 12
    assert math.isnan(report.correlation)


def test_invalid_arguments_are_rejected(case):
    with pytest.raises(HeadMismatchError, match=r"\(O, 12\)"):
        subspace_report(case.source, torch.zeros(1, 5))
    for share in (0, 1.5):
        with pytest.raises(OptionError, match="share"):
            subspace_report(case.source, case.weight, share=share)
    with pytest.raises(OptionError, match="k"):
        subspace_report(case.source, case.weight, k=0)
