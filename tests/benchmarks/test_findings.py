import json

import numpy as np
import pytest

from benchmarks.speed.findings import Findings, spread
from helpers.speed_findings import EVERYTHING


@pytest.mark.parametrize("count", [1, 2, 3, 10, 21])
def test_spread_matches_numpy_quantiles(count):
    values = np.random.default_rng(count).random(count).tolist()
    found = spread(values)
    assert (found.low, found.median, found.high) == pytest.approx(tuple(np.quantile(values, [0.25, 0.5, 0.75])))
    assert found.count == count


def test_inverse_is_the_spread_of_the_inverse_values():
    values = [0.5, 0.7, 0.9, 1.1, 4.0]
    inverse, expected = spread(values).inverse, spread([1 / value for value in values])
    assert (inverse.low, inverse.median, inverse.high) == pytest.approx((expected.low, expected.median, expected.high))


def test_findings_of_every_kind_round_trip_through_json():
    assert Findings.from_plain(json.loads(json.dumps(EVERYTHING.plain()))) == EVERYTHING
