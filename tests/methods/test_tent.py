import math

import pytest
import torch
from scipy.stats import entropy as scipy_entropy

import regtta
from helpers.method_inputs import batch_of, context_of, head_of
from regtta.errors import ModelError


def test_worked_example():
    # Logits (log 3, 0, 0, 0), (0, 0, 0, 0) and (large, 0, 0, 0): entropies of (1/2, 1/6, 1/6, 1/6), uniform, and 0.
    logits = torch.zeros(3, 4, dtype=torch.float64)
    logits[0, 0], logits[2, 0] = math.log(3), 200.0
    expected = (0.5 * math.log(2) + 0.5 * math.log(6) + math.log(4) + 0) / 3
    rule = regtta.Tent().start(context_of(head_of([1.0] * 4, [0.0] * 4)))
    assert rule.update(batch_of(outputs=logits)).item() == pytest.approx(expected)


def test_against_scipy():
    logits = torch.randn(9, 5, dtype=torch.float64)
    rule = regtta.Tent().start(context_of(head_of([1.0] * 4, [0.0] * 4)))
    expected = scipy_entropy(logits.softmax(1).numpy(), axis=1).mean()
    assert rule.update(batch_of(outputs=logits)).item() == pytest.approx(expected, rel=1e-10)


def test_regressors_raise():
    with pytest.raises(ModelError, match="gives 1 output, and tent needs logits of at least 2 classes"):
        regtta.Tent().start(context_of(head_of([1.0] * 4)))
