import pytest
import torch
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score

from regtta.errors import OptionError
from regtta_bench.paper.protocol import compute_output_scores, compute_scores


def test_accuracy_against_scikit_learn():
    logits, classes = torch.randn(50, 4), torch.randint(4, (50, 1)).float()
    expected = accuracy_score(classes[:, 0].int(), logits.argmax(1))
    assert compute_scores(logits, classes, "classification") == {"accuracy": pytest.approx(expected), "count": 50}


def test_logits_that_are_not_finite_have_no_accuracy():
    logits = torch.tensor([[1.0, torch.nan], [2.0, 0.0]])
    assert compute_scores(logits, torch.zeros(2, 1), "classification")["accuracy"] is None


def test_numbers_as_a_whole_and_by_output():
    predictions, targets = torch.randn(30, 3), torch.randn(30, 3)
    whole, each = compute_scores(predictions, targets), compute_output_scores(predictions, targets)
    assert whole["r2"] == pytest.approx(r2_score(targets, predictions), rel=1e-6)
    for column, scores in enumerate(each):
        assert scores["r2"] == pytest.approx(r2_score(targets[:, column], predictions[:, column]), rel=1e-6)
        assert scores["mae"] == pytest.approx(mean_absolute_error(targets[:, column], predictions[:, column]), rel=1e-6)
    assert compute_scores(torch.full((2, 1), torch.inf), torch.tensor([[0.0], [1.0]]))["r2"] is None


def test_an_unknown_task_is_refused():
    with pytest.raises(OptionError, match="the task"):
        compute_scores(torch.zeros(1, 1), torch.zeros(1, 1), "ranking")
