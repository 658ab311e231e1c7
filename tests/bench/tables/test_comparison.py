import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap

from regtta.errors import OptionError
from regtta_bench.tables.comparison import best_methods, paired_difference


def by_model(values):
    return dict(enumerate(values))


def test_the_interval_is_scipys_percentile_bootstrap():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.5, 0.2, 12), rng.normal(0.4, 0.2, 12)
    gap = paired_difference(by_model(first), by_model(second))
    expected = bootstrap(
        (first - second,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert gap.mean == pytest.approx((first - second).mean())
    assert gap.low == pytest.approx(expected.low, abs=0.01)
    assert gap.high == pytest.approx(expected.high, abs=0.01)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.floats(-3, 3))
def test_properties_of_a_difference(values, shift):
    first, second = by_model(values), by_model([value - shift for value in values])
    gap, back = paired_difference(first, second), paired_difference(second, first)
    assert gap.mean == pytest.approx(shift, abs=1e-9)
    assert (gap.low, gap.high) == (pytest.approx(shift, abs=1e-9), pytest.approx(shift, abs=1e-9))
    assert back.mean == pytest.approx(-gap.mean, abs=1e-9)
    assert gap.low <= gap.mean + 1e-9
    assert gap.mean <= gap.high + 1e-9


def test_only_shared_source_models_are_paired():
    first, second = {0: 10.1, 1: 0.2, 7: 99.0}, {0: 10.0, 1: 0.1, 5: -99.0}
    gap = paired_difference(first, second)
    assert gap.pairs == 2
    assert gap.mean == pytest.approx(0.1)
    assert gap.is_significant


def test_undecided_differences():
    assert paired_difference({}, {0: 1.0}).pairs == 0
    one = paired_difference({0: 2.0}, {0: 1.0})
    assert (one.mean, one.is_significant) == (1.0, False)
    assert math.isnan(one.low)
    diverged = paired_difference({0: math.nan, 1: 1.0}, {0: 0.0, 1: 0.0})
    assert not diverged.is_significant
    mixed = paired_difference({0: 1.0, 1: -1.0, 2: 0.1}, {0: 0.0, 1: 0.0, 2: 0.0})
    assert not mixed.is_significant
    behind = paired_difference({0: 0.0, 1: 0.1}, {0: 1.0, 1: 1.2})
    assert behind.is_significant
    assert behind.high < 0
    with pytest.raises(OptionError, match="confidence between 0 and 1"):
        paired_difference({0: 1.0}, {0: 1.0}, confidence=1.0)


def test_the_best_and_all_that_tie():
    scores = {
        "ahead": by_model([0.5, 0.6, 0.7]),
        "tied": by_model([0.52, 0.58, 0.68]),
        "behind": by_model([0.4, 0.5, 0.6]),
        "diverged": by_model([0.9, math.nan, 0.9]),
    }
    assert best_methods(scores) == ("ahead", "tied")
    errors = {name: {key: -value for key, value in values.items()} for name, values in scores.items()}
    assert best_methods(errors, larger_is_better=False) == ("ahead", "tied")
    assert best_methods({"diverged": scores["diverged"]}) == ()
