import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import KBinsDiscretizer

from regtta.errors import OptionError
from regtta_bench.data import Domain
from regtta_bench.data.domains import bin_edges, discretise, split_domain


@pytest.mark.parametrize("bins", [2, 10])
def test_agrees_with_scikit_learn(bins):
    targets = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    expected = KBinsDiscretizer(bins, encode="ordinal", strategy="uniform").fit_transform(targets.double().numpy())
    made = discretise(Domain(torch.zeros(200, 3), targets), bin_edges(targets, bins))
    np.testing.assert_array_equal(made.targets, expected)
    assert made.targets.dtype == torch.float32


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=30), st.integers(2, 12))
def test_classes_are_within_the_bins_and_follow_the_labels(values, bins):
    targets = torch.tensor(values).unsqueeze(1)
    if targets.max() <= targets.min():
        return
    edges = bin_edges(targets, bins)
    classes = discretise(Domain(targets, targets), edges).targets.squeeze(1)
    assert classes.min() >= 0
    assert classes.max() <= bins - 1
    assert (classes[targets.squeeze(1).argsort()].diff() >= 0).all()


def test_labels_beyond_the_sources_range_fall_into_the_last_bins():
    edges = bin_edges(torch.tensor([[0.0], [1.0]]), 4)
    far = Domain(torch.zeros(2, 1), torch.tensor([[-9.0], [9.0]]))
    assert discretise(far, edges).targets.tolist() == [[0.0], [3.0]]


def test_one_bin_and_labels_that_never_vary_are_rejected():
    with pytest.raises(OptionError, match="at least 2 bins, found 1"):
        bin_edges(torch.tensor([[0.0], [1.0]]), 1)
    with pytest.raises(OptionError, match="labels that vary"):
        bin_edges(torch.ones(5, 1))


def test_a_label_on_an_edge_belongs_to_the_bin_that_it_begins():
    targets = torch.arange(5.0).unsqueeze(1)
    expected = KBinsDiscretizer(4, encode="ordinal", strategy="uniform").fit_transform(targets.double().numpy())
    made = discretise(Domain(targets, targets), bin_edges(targets, 4))
    np.testing.assert_array_equal(made.targets, expected)
    assert made.targets.squeeze(1).tolist() == [0, 1, 2, 3, 3]


def test_splits_are_random_disjoint_and_determined_by_the_seed():
    domain = Domain(torch.arange(50.0).unsqueeze(1), torch.arange(50.0).unsqueeze(1))
    train, validation = split_domain(domain, 0.1, seed=3)
    assert (len(train), len(validation)) == (45, 5)
    assert sorted(torch.cat([train.inputs, validation.inputs])[:, 0].tolist()) == list(range(50))
    assert torch.equal(train.inputs, train.targets)
    assert torch.equal(split_domain(domain, 0.1, seed=3)[1].inputs, validation.inputs)
    assert not torch.equal(split_domain(domain, 0.1, seed=4)[1].inputs, validation.inputs)
