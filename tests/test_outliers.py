import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from regtta.outliers import all_within, column_values, is_table, outlier_scores


def table(rows=32, columns=5, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_scores_of_a_table_are_deviations_in_units_of_scipys_median_absolute_deviation():
    values = table(31)  # odd: torch's median of an even number is the lower one, scipy's the mean of two
    deviations = np.abs(values.numpy() - np.median(values, axis=0))
    expected = (deviations / stats.median_abs_deviation(values.numpy(), axis=0)).max(axis=1)
    torch.testing.assert_close(outlier_scores(values, table=True), torch.from_numpy(expected))


@settings(max_examples=50, deadline=None)
@given(shift=st.floats(-100, 100), scale=st.floats(0.01, 100), seed=st.integers(0, 1000))
def test_a_table_that_is_shifted_and_rescaled_as_a_whole_has_the_scores_it_had(shift, scale, seed):
    values = table(seed=seed)
    torch.testing.assert_close(
        outlier_scores(values * scale + shift, table=True), outlier_scores(values, table=True), rtol=1e-6, atol=1e-6
    )


def test_images_are_scored_by_the_largest_magnitude_of_a_channel_over_its_median():
    images = torch.rand(16, 3, 4, 4)
    images[5, 1, 2, 2] = -700.0
    peaks = images.abs().amax(dim=(2, 3))
    torch.testing.assert_close(column_values(images), peaks)
    expected = (peaks / peaks.median(dim=0).values).amax(dim=1)
    torch.testing.assert_close(outlier_scores(column_values(images), table=is_table(images)), expected)
    assert int(expected.argmax()) == 5


def test_images_that_are_all_saturated_still_have_a_scale():
    images = torch.ones(16, 3, 4, 4)
    images[2, 0, 0, 0] = 65535.0
    scores = outlier_scores(column_values(images), table=False)
    assert scores[2] == 65535
    assert (scores[[0, 1, 3]] == 1).all()


def test_a_sparse_column_is_measured_by_the_scale_of_the_others():
    values = table(32)
    values[:, 3] = 0.0
    values[7, 3] = 1.0
    usual = (values - values.median(dim=0).values).abs().median(dim=0).values
    others = outlier_scores(values[:, [0, 1, 2, 4]], table=True)
    scores = outlier_scores(values, table=True)
    assert float(scores[7]) == pytest.approx(max(float(others[7]), 1 / float(usual[usual > 0].median())))
    values[7, 3] = 65535.0
    assert float(outlier_scores(values, table=True)[7]) > 10_000


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1000), factor=st.floats(0.0, 1e6), limit=st.floats(1.0, 1e4), images=st.booleans())
def test_what_is_plainly_within_a_limit_is(seed, factor, limit, images):
    values = table(24, seed=seed)
    values[3, 2] *= factor
    values = values.abs() if images else values
    largest = float(outlier_scores(values, table=not images).max())
    assert all_within(values, limit, table=not images) == (largest <= limit)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nothing_is_plain_where_a_value_is_not_finite_or_a_column_has_no_scale(bad):
    values = table()
    assert all_within(values, 1e6, table=True)
    values[3, 1] = bad
    assert not all_within(values, 1e6, table=True)
    sparse = table()
    sparse[:, 1] = 0.0
    assert not all_within(sparse, 1e6, table=True)


def test_rows_that_are_all_the_same_score_nothing():
    assert (outlier_scores(torch.ones(9, 2), table=True) == 0).all()
    assert (outlier_scores(torch.zeros(9, 2), table=False) == 0).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_value_that_is_not_finite_leaves_a_score_that_is_not(bad):
    values = table()
    values[3, 1] = bad
    assert not outlier_scores(values, table=True)[3].isfinite()


@pytest.mark.parametrize(
    ("shape", "columns"), [((9,), 1), ((9, 5), 5), ((9, 300), 1), ((9, 3, 8, 8), 3), ((9, 300, 4), 1), ((9, 7, 5), 7)]
)
def test_samples_of_any_shape_have_columns(shape, columns):
    values = torch.randn(shape)
    found = column_values(values)
    assert found.shape == (9, columns)
    if columns == 1 and values.ndim > 1:
        torch.testing.assert_close(found[:, 0], values.flatten(1).abs().amax(dim=1))


def test_many_rows_are_measured_by_some_of_them():
    values = table(4096)
    deviations = (values - values.median(dim=0).values).abs()
    expected = (deviations / deviations.median(dim=0).values).amax(dim=1)
    ratio = outlier_scores(values, table=True) / expected
    assert float(ratio.min()) > 0.3
    assert float(ratio.max()) < 3
