import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import small_models
from regtta.errors import BatchError, OptionError
from regtta.report.analysis import reconstruction
from regtta.report.analysis.subspace_analysis import _CHUNK_ROWS


def by_the_papers_formula(source, features, n):
    mean, basis, rows = (
        small_models.numpy64(source.mean),
        small_models.numpy64(source.basis),
        small_models.numpy64(features),
    )
    errors = []
    for z in rows:
        rebuilt = mean + sum(((z - mean) @ basis[:, d]) * basis[:, d] for d in range(n))
        errors.append(np.linalg.norm(rebuilt - z))
    return np.mean(errors)


def test_agrees_with_the_papers_formula_sample_by_sample(case):
    report = reconstruction(case.source, {"Source": case.before, "SSA": case.after})
    assert report.bases.tolist() == list(range(13))
    for name, features in (("Source", case.before), ("SSA", case.after)):
        expected = [by_the_papers_formula(case.source, features, n) for n in range(13)]
        assert report.errors[name] == pytest.approx(expected, rel=1e-8, abs=1e-9)
        assert report.counts[name] == 200
    assert report.rank == case.source.rank
    json.dumps(report.to_dict(), allow_nan=False)


def test_many_rows_are_processed_in_chunks(case):
    features = case.before.repeat(2 * _CHUNK_ROWS // 200 + 1, 1)
    parted = reconstruction(case.source, {"a": features}, bases=[3]).errors["a"]
    assert parted == pytest.approx(reconstruction(case.source, {"a": case.before}, bases=[3]).errors["a"])


@given(seed=st.integers(0, 100), scale=st.floats(0.1, 100))
def test_errors_fall_with_directions_and_vanish_with_all(case, seed, scale):
    features = torch.randn(7, 12, generator=torch.Generator().manual_seed(seed)) * scale
    errors = reconstruction(case.source, {"a": features}).errors["a"]
    assert (np.diff(errors) <= 0).all()
    assert errors[-1] == 0


def test_chosen_numbers_of_directions_and_non_finite_features(case):
    broken = case.before.clone()
    broken[3, 0] = torch.nan
    report = reconstruction(case.source, {"fine": case.before, "broken": broken}, bases=[0, 5])
    assert report.errors["fine"] == pytest.approx(
        [by_the_papers_formula(case.source, case.before, n) for n in (0, 5)], rel=1e-8
    )
    assert report.to_dict()["errors"]["broken"] == [None, None]


@pytest.mark.parametrize("bases", [[], [-1], [13]])
def test_invalid_numbers_of_directions_are_rejected(case, bases):
    with pytest.raises(OptionError, match="between 0 and 12"):
        reconstruction(case.source, {"a": case.before}, bases=bases)


def test_features_of_another_width_are_rejected(case):
    with pytest.raises(BatchError, match=r"\(N, 12\)"):
        reconstruction(case.source, {"a": torch.zeros(3, 4)})
