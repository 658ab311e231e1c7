import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from regtta.statistics.outliers import column_values, deviations, is_table, to_column_array


def table(rows=32, columns=5, seed=0):
    return np.random.default_rng(seed).normal(size=(columns, rows))


def max_deviations(columns, *, table):
    """Return the largest deviation of each sample."""
    return deviations(columns, table=table).max(axis=0)


def test_scores_of_a_table_are_deviations_in_units_of_scipys_median_absolute_deviation():
    columns = table(31)  # odd: for even numbers scipy averages the two medians, and deviations use the lower one
    deviations = np.abs(columns - np.median(columns, axis=1, keepdims=True))
    expected = (deviations / stats.median_abs_deviation(columns, axis=1)[:, None]).max(axis=0)
    assert max_deviations(columns, table=True) == pytest.approx(expected)


@settings(max_examples=50, deadline=None)
@given(shift=st.floats(-100, 100), scale=st.floats(0.01, 100), seed=st.integers(0, 1000))
def test_scores_of_a_table_do_not_depend_on_shift_and_scale(shift, scale, seed):
    columns = table(seed=seed)
    moved = max_deviations(columns * scale + shift, table=True)
    assert moved == pytest.approx(max_deviations(columns, table=True), rel=1e-6, abs=1e-6)


def test_images_are_scored_by_the_largest_magnitude_of_a_channel_over_its_median():
    images = torch.rand(17, 3, 4, 4)
    images[5, 1, 2, 2] = -700.0
    peaks = images.abs().amax(dim=(2, 3)).numpy().T
    assert to_column_array(column_values(images)) == pytest.approx(peaks)
    expected = (peaks / np.median(peaks, axis=1, keepdims=True)).max(axis=0)
    assert max_deviations(peaks, table=is_table(images)) == pytest.approx(expected)
    assert expected.argmax() == 5


def test_saturated_images_have_a_scale():
    images = torch.ones(16, 3, 4, 4)
    images[2, 0, 0, 0] = 65535.0
    scores = max_deviations(to_column_array(column_values(images)), table=False)
    assert scores[2] == 65535
    assert (scores[[0, 1, 3]] == 1).all()


def test_a_sparse_column_is_measured_by_the_scale_of_the_others():
    columns = table(31)
    columns[3] = 0.0
    columns[3, 7] = 1.0
    others = max_deviations(columns[[0, 1, 2, 4]], table=True)
    scales = stats.median_abs_deviation(columns[[0, 1, 2, 4]], axis=1)
    usual = np.sort(scales)[1]  # the lower of the two in the middle
    assert max_deviations(columns, table=True)[7] == pytest.approx(max(others[7], 1 / usual))
    columns[3, 7] = 65535.0
    assert max_deviations(columns, table=True)[7] > 10_000


def test_identical_rows_have_scores_of_zero():
    assert (max_deviations(np.ones((2, 9)), table=True) == 0).all()
    assert (max_deviations(np.zeros((2, 9)), table=False) == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_non_finite_value_has_a_non_finite_score(bad):
    columns = table()
    columns[1, 3] = bad
    scores = max_deviations(columns, table=True)
    assert not np.isfinite(scores[3])
    assert np.isfinite(np.delete(scores, 3)).all()


def test_numbers_near_the_float32_maximum_raise_no_warning():
    columns = (np.clip(table(), -1, 1) * 3e38).astype(np.float32)
    assert max_deviations(columns, table=True).shape == (32,)


@pytest.mark.parametrize(
    ("shape", "columns"), [((9,), 1), ((9, 5), 5), ((9, 300), 1), ((9, 3, 8, 8), 3), ((9, 300, 4), 1), ((9, 7, 5), 7)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_samples_of_any_shape_have_columns(shape, columns, dtype):
    values = torch.randn(shape).to(dtype)
    found = to_column_array(column_values(values))
    assert found.shape == (columns, 9)
    assert found.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    if columns == 1:
        assert found[0] == pytest.approx(values.reshape(9, -1).abs().amax(dim=1).double().numpy())


def test_images_with_channels_last_have_the_same_columns():
    images = torch.randn(9, 3, 8, 8)
    assert torch.equal(column_values(images.contiguous(memory_format=torch.channels_last)), column_values(images))


def test_the_scale_of_many_rows_is_computed_from_a_subset():
    columns = table(4096)
    deviations = np.abs(columns - np.median(columns, axis=1, keepdims=True))
    expected = (deviations / np.median(deviations, axis=1, keepdims=True)).max(axis=0)
    ratio = max_deviations(columns, table=True) / expected
    assert ratio.min() > 0.3
    assert ratio.max() < 3
