import pytest
import torch

from regtta.guards import (
    DEFAULT,
    FiniteInputs,
    FiniteStep,
    Guard,
    IncomingBatch,
    MinBatchSize,
    NonConstantInputs,
    OutlierRows,
    StepStats,
)


def arriving(inputs):
    return IncomingBatch(inputs, lambda *_: pytest.fail("nobody needs a forward pass for this"))


def test_a_guard_by_itself_lets_everything_pass():
    assert Guard().exclude_rows(arriving(torch.full((1, 1), torch.nan))) is None
    assert Guard().before_step(arriving(torch.full((1, 1), torch.nan))) is None
    assert Guard().after_step(StepStats(float("nan"), None)) is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_finite_inputs_counts_samples_not_values(bad):
    x = torch.zeros(4, 2, 3)
    assert FiniteInputs().exclude_rows(arriving(x)) is None
    x[1, 0, 0] = x[1, 1, 2] = x[3, 0, 1] = bad
    exclusion = FiniteInputs().exclude_rows(arriving(x))
    assert exclusion.rows.tolist() == [False, True, False, True]
    assert exclusion.reason == "2 of 4 samples are not finite"
    assert FiniteInputs().exclude_rows(arriving(x[:2])).reason == "1 of 2 samples is not finite"
    assert FiniteInputs().exclude_rows(arriving(torch.tensor([1.0, bad]))).rows.tolist() == [False, True]
    assert FiniteInputs().exclude_rows(arriving(torch.zeros(2, 3, dtype=torch.long))) is None
    assert FiniteInputs().exclude_rows(arriving(torch.full((2, 3), 3e38))) is None  # though their sum is infinite


def test_several_samples():
    assert MinBatchSize().before_step(arriving(torch.zeros(2, 3))) is None
    assert MinBatchSize().before_step(arriving(torch.zeros(1, 3))) == "a batch of 1 has no variance"
    assert MinBatchSize().before_step(arriving(torch.zeros(0, 3))) == "a batch of 0 has no variance"


def test_varied_inputs():
    x = torch.zeros(3, 2)
    assert NonConstantInputs().before_step(arriving(x)) == "all samples are the same"
    assert NonConstantInputs().before_step(arriving(x + torch.tensor([0.0, 5.0]))) == "all samples are the same"
    x[2, 1] = 1e-6
    assert NonConstantInputs().before_step(arriving(x)) is None
    assert NonConstantInputs().before_step(arriving(torch.zeros(0, 2))) is None
    assert NonConstantInputs().before_step(arriving(torch.ones(1, 2))) is None


def test_finite_step():
    assert FiniteStep().after_step(StepStats(1.0, 2.0)) is None
    assert FiniteStep().after_step(StepStats(None, None)) is None
    assert FiniteStep().after_step(StepStats(float("inf"), 1.0)) == "the loss is not finite"
    assert FiniteStep().after_step(StepStats(1.0, float("nan"))) == "the gradient is not finite"


def test_the_default_refuses_only_what_cannot_be_learned_from():
    assert {type(guard) for guard in DEFAULT} == {
        FiniteInputs,
        OutlierRows,
        MinBatchSize,
        NonConstantInputs,
        FiniteStep,
    }
