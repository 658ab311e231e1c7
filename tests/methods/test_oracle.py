import logging

import pytest
import torch

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of
from regtta.errors import BatchError, OptionError


def started(**options):
    return regtta.Oracle(**options).start(context_of(head_of([1.0] * 4)))


def test_worked_example_of_regression():
    outputs = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    for targets in (torch.tensor([1.0, 4.0, 0.0]), torch.tensor([[1], [4], [0]])):
        assert started().update(batch_of(outputs=outputs, targets=targets)).item() == pytest.approx(13 / 3)


def test_several_outputs_are_averaged():
    outputs, targets = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    expected = ((outputs - targets).numpy() ** 2).mean()
    assert started().update(batch_of(outputs=outputs, targets=targets)).item() == pytest.approx(expected)


def test_classification_loss_is_the_cross_entropy():
    outputs, targets = torch.randn(3, 4, dtype=torch.float64), torch.tensor([0, 3, 1])
    expected = -outputs.log_softmax(1)[range(3), targets].mean()
    rule = started(task="classification")
    assert rule.update(batch_of(outputs=outputs, targets=targets)).item() == pytest.approx(expected.item())


def test_a_warning_is_logged_and_labels_are_required(caplog):
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(small_models.mlp(), regtta.Oracle())
    assert "learns from target labels" in caplog.text
    x = small_models.table(8)
    with pytest.raises(BatchError, match=r"oracle learns from labels, .* Call adapt\(x, targets=y\)"):
        adapter.adapt(x)
    with pytest.raises(BatchError, match=r"Targets of shape \(7,\) do not fit outputs of shape \(8, 1\)"):
        adapter.adapt(x, targets=torch.ones(7))
    with pytest.raises(BatchError, match=r"Targets of shape \(4, 2\) do not fit"):
        adapter.adapt(x, targets=torch.ones(4, 2))
    assert adapter.adapt(x, targets=torch.ones(8)).diagnostics.verdict.learned


def test_all_parameters_are_trainable():
    model = small_models.mlp()
    adapter = regtta.Adapter(model, regtta.Oracle(trainable="all"))
    adapter.adapt(small_models.table(8), targets=torch.ones(8))
    moved = {n for n, p in adapter.export().named_parameters() if not torch.equal(p, model.get_parameter(n))}
    assert moved == {n for n, _ in model.named_parameters()} - {"0.bias", "3.bias"} or moved == {
        n for n, _ in model.named_parameters()
    }
    assert {"0.weight", "6.weight", "6.bias"} <= moved


def test_invalid_task():
    with pytest.raises(OptionError, match="task to be one of"):
        regtta.Oracle(task="ranking")
