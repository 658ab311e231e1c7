from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regtta.errors import BatchError, OptionError
from regtta.report.recorder import Reservoir

SEEDS = 1500


def sample_rows(sizes, most, seed):
    """Return the rows kept of a stream 0, 1, 2, … in batches of ``sizes``."""
    reservoir = Reservoir(most, seed=seed)
    for batch in torch.arange(sum(sizes)).split(sizes):
        reservoir.update(batch)
    return reservoir.rows()[0].tolist()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 15), st.integers(0, 2**31))
def test_rows_are_in_stream_order_aligned_and_bounded(sizes, most, seed):
    reservoir = Reservoir(most, seed=seed)
    stream = torch.arange(sum(sizes))
    for batch in stream.split(sizes):
        reservoir.update(batch, torch.stack([batch, -batch], dim=1).double())
    numbers, pairs = reservoir.rows()
    assert reservoir.seen == len(stream)
    assert len(numbers) == min(most, len(stream))
    assert all(one < other for one, other in pairwise(numbers.tolist()))
    assert set(numbers.tolist()) <= set(stream.tolist())
    assert torch.equal(pairs, torch.stack([numbers, -numbers], dim=1).double())


@pytest.mark.parametrize("sizes", [(12,), (5, 1, 6)])
def test_rows_and_pairs_are_sampled_uniformly(sizes):
    draws = [sample_rows(sizes, 3, seed) for seed in range(SEEDS)]
    for row in range(12):
        count = sum(row in draw for draw in draws)
        # 3 of 12 rows: a quarter of the draws, within five standard deviations of the binomial distribution.
        assert count == pytest.approx(SEEDS / 4, abs=5 * (SEEDS * 3 / 16) ** 0.5)
    chance = 3 / 12 * 2 / 11
    for pair in ((0, 11), (4, 5), (10, 11)):
        count = sum(set(pair) <= set(draw) for draw in draws)
        assert count == pytest.approx(SEEDS * chance, abs=5 * (SEEDS * chance * (1 - chance)) ** 0.5)


def test_the_same_seed_draws_the_same_rows():
    assert sample_rows((40, 40), 7, seed=3) == sample_rows((40, 40), 7, seed=3)
    assert sample_rows((40, 40), 7, seed=3) != sample_rows((40, 40), 7, seed=4)


def test_kept_rows_do_not_reference_batches_or_graphs():
    reservoir = Reservoir(2, seed=0)
    for _ in range(3):
        reservoir.update(torch.randn(1000, 3, requires_grad=True) * 2)
    (rows,) = reservoir.rows()
    assert not rows.requires_grad
    assert rows.untyped_storage().nbytes() == 2 * 3 * 4


def test_an_empty_reservoir():
    assert Reservoir(2, seed=0).rows() == []


@pytest.mark.parametrize("columns", [(torch.zeros(3), torch.zeros(2)), (torch.zeros(3),)])
def test_unpaired_columns_are_rejected(columns):
    reservoir = Reservoir(2, seed=0)
    reservoir.update(torch.zeros(4), torch.ones(4))
    with pytest.raises(BatchError, match="as many columns as before, all with the same rows"):
        reservoir.update(*columns)
    assert reservoir.seen == 4


@pytest.mark.parametrize("most", [0, -1, 1.5])
def test_an_invalid_number_of_rows_is_rejected(most):
    with pytest.raises(OptionError, match="most"):
        Reservoir(most, seed=0)
