import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from regtta.statistics.shift_tests import chi2_critical_value, f_critical_value

DIMENSIONS = [1, 2, 3, 5, 10, 30, 100, 200, 500]
NONCENTRALITIES = [0.1, 1, 5, 20, 100, 500, 2000]
LEVELS = [0.1, 0.05, 0.01, 1e-3, 1e-4]


@pytest.mark.parametrize("dimensions", DIMENSIONS)
def test_chi2_critical_values_without_noncentrality(dimensions):
    """The error is at most 1 % from 12 dimensions on, and 7.5 % below (one dimension, level 1e-4)."""
    for level in LEVELS:
        found = chi2_critical_value(dimensions, 0.0, level)
        assert found == pytest.approx(stats.chi2.isf(level, dimensions), rel=0.01 if dimensions >= 12 else 0.075)


@pytest.mark.parametrize("dimensions", DIMENSIONS)
def test_chi2_critical_values_with_noncentrality(dimensions):
    """The error is from −5 % to ``0.2 / √dimensions``, and never negative at levels up to 1e-3."""
    for noncentrality, level in itertools.product(NONCENTRALITIES, LEVELS):
        exact = stats.ncx2.isf(level, dimensions, noncentrality)
        ratio = chi2_critical_value(dimensions, noncentrality, level) / exact
        assert (-1e-4 if level <= 1e-3 else -0.05) < ratio - 1 < 0.2 / dimensions**0.5, (noncentrality, level)


@pytest.mark.parametrize("above", [1, 2, 3, 7, 15, 50, 200])
def test_f_critical_values(above):
    """The error is at most 7 % for ``below`` ≥ 16, and 1.7 % for ``above`` ≥ 3, ``below`` ≥ 30 and levels ≥ 1e-3."""
    for below, level in itertools.product([16, 20, 30, 60, 124, 200], LEVELS):
        usual = above >= 3 and below >= 30 and level >= 1e-3
        exact = stats.f.isf(level, above, below)
        assert f_critical_value(above, below, level) == pytest.approx(exact, rel=0.017 if usual else 0.07), (
            below,
            level,
        )


@pytest.mark.parametrize(("above", "below", "level"), [(1, 1, 1e-3), (3, 2, 1e-4), (1, 2, 1e-4), (200, 3, 1e-4)])
def test_f_critical_values_of_few_degrees_of_freedom_are_upper_bounds(above, below, level):
    assert f_critical_value(above, below, level) >= stats.f.isf(level, above, below)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 500), st.floats(0, 2000), st.floats(1e-4, 0.2), st.floats(1.01, 5))
def test_critical_values_are_monotonic(dimensions, noncentrality, level, by):
    limit = chi2_critical_value(dimensions, noncentrality, level)
    assert chi2_critical_value(dimensions + 1, noncentrality, level) > limit
    assert chi2_critical_value(dimensions, noncentrality * by + 0.1, level) > limit
    assert chi2_critical_value(dimensions, noncentrality, level / by) > limit
    below = 30 + dimensions
    assert f_critical_value(dimensions, below, level / by) > f_critical_value(dimensions, below, level) > 0
    assert f_critical_value(dimensions, below, level) > f_critical_value(dimensions, below + 10, level)
