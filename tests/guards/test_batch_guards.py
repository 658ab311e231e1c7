"""Guards on the inputs of a batch, each alone."""

import pytest
import torch

from helpers.guard_inputs import batch_without_forward, incoming_batch
from regtta.guards import (
    FiniteInputs,
    GuardContext,
    MinBatchSize,
    NonConstantInputs,
)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_finite_inputs_counts_samples_not_values(bad):
    x = torch.zeros(4, 2, 3)
    assert FiniteInputs().exclude_rows(batch_without_forward(x)) is None
    x[1, 0, 0] = x[1, 1, 2] = x[3, 0, 1] = bad
    exclusion = FiniteInputs().exclude_rows(batch_without_forward(x))
    assert exclusion.rows.tolist() == [False, True, False, True]
    assert exclusion.reason == "2 of 4 samples are not finite"
    assert FiniteInputs().exclude_rows(batch_without_forward(x[:2])).reason == "1 of 2 samples is not finite"
    assert FiniteInputs().exclude_rows(batch_without_forward(torch.tensor([1.0, bad]))).rows.tolist() == [False, True]
    assert FiniteInputs().exclude_rows(batch_without_forward(torch.zeros(2, 3, dtype=torch.long))) is None
    assert (
        FiniteInputs().exclude_rows(batch_without_forward(torch.full((2, 3), 3e38))) is None
    )  # though their sum is infinite


def test_min_batch_size():
    assert MinBatchSize().before_step(batch_without_forward(torch.zeros(2, 3))) is None
    assert MinBatchSize().before_step(batch_without_forward(torch.zeros(1, 3))) == "a batch of 1 has no variance"
    assert MinBatchSize().before_step(batch_without_forward(torch.zeros(0, 3))) == "a batch of 0 has no variance"


def test_non_constant_inputs():
    x = torch.zeros(3, 2)
    assert NonConstantInputs().before_step(batch_without_forward(x)) == "all samples are the same"
    assert (
        NonConstantInputs().before_step(batch_without_forward(x + torch.tensor([0.0, 5.0])))
        == "all samples are the same"
    )
    x[2, 1] = 1e-6
    assert NonConstantInputs().before_step(batch_without_forward(x)) is None
    assert NonConstantInputs().before_step(batch_without_forward(torch.zeros(0, 2))) is None
    assert NonConstantInputs().before_step(batch_without_forward(torch.ones(1, 2))) is None


@pytest.mark.parametrize(
    ("min_batch_size", "size", "reason"), [(2, 1, "a batch of 1 has no variance"), (2, 2, None), (1, 1, None)]
)
def test_min_batch_size_of_the_method(min_batch_size, size, reason):
    assert (
        MinBatchSize().start(GuardContext(min_batch_size)).before_step(incoming_batch(torch.zeros(size, 3))) == reason
    )


def test_min_batch_size_given_by_the_user():
    state = MinBatchSize(16).start(GuardContext(2))
    assert state.before_step(incoming_batch(torch.zeros(16, 3))) is None
    assert state.before_step(incoming_batch(torch.zeros(15, 3))) == "a batch of 15 is fewer than 16"
    assert (
        MinBatchSize(16).start(GuardContext(1)).before_step(incoming_batch(torch.zeros(1, 3))) is None
    )  # the method keeps a window
