import pytest
import torch
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score

import regtta
from helpers import small_models
from regtta.errors import OptionError
from regtta_bench.data import Domain
from regtta_bench.paper.protocol import compute_output_scores, compute_scores, divergence_reasons, evaluate


def problem():
    model = small_models.mlp()
    inputs = small_models.table(70, shift=0.8)
    targets = inputs.sum(1, keepdim=True)
    return model, regtta.collect(model, small_models.table(300).split(50)), Domain(inputs, targets)


def test_both_protocols_against_the_library_and_scikit_learn():
    model, source, target = problem()
    outcome = evaluate(regtta.Adapter(model, regtta.SSA(k=3), source), target, batch_size=23)
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source)
    online = torch.cat([step.predictions for step in adapter.run(target.inputs.split(23))])
    assert outcome.scores["online"]["r2"] == pytest.approx(r2_score(target.targets, online), rel=1e-6)
    assert outcome.scores["offline"]["r2"] == pytest.approx(
        r2_score(target.targets, adapter.predict(target.inputs)), rel=1e-6
    )
    assert (outcome.learned, dict(outcome.refused), outcome.diverged) == (3, {"a batch of 1 has no variance": 1}, "")


def test_only_the_oracle_gets_labels():
    model, _, target = problem()
    outcome = evaluate(
        regtta.Adapter(model, regtta.Oracle(lr=0.02, trainable="all", batch_norm="source")), target, batch_size=10
    )
    plain = evaluate(regtta.Adapter(model, regtta.NoAdaptation()), target, batch_size=10)
    assert outcome.scores["offline"]["r2"] > plain.scores["offline"]["r2"]
    assert plain.diverged == ""  # it takes no step, and has nothing to train


def test_divergence_reasons():
    model, source, target = problem()
    with torch.no_grad():
        model[4].weight[:2], model[4].bias[:2] = 0, -1
    source = regtta.collect(model, small_models.table(300).split(50))
    wild = evaluate(regtta.Adapter(model, regtta.SSA(k=12, clip=False), source), target, batch_size=35)
    assert wild.diverged == "loss, every step refused"
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source)
    steps = list(adapter.run(target.inputs.split(35)))
    assert divergence_reasons(steps, {"offline": torch.zeros(2)}, adapter) == ""
    assert divergence_reasons(steps, {"offline": torch.tensor([0.0, torch.nan])}, adapter) == "predictions"
    with torch.no_grad():
        adapter._model[4].weight[0] = torch.inf
    assert divergence_reasons(steps, {"offline": torch.zeros(2)}, adapter) == "weights"


def test_several_outputs_are_also_scored_separately():
    model, inputs = small_models.mlp(outputs=2), small_models.table(60)
    targets = torch.stack([inputs.sum(1), inputs[:, 0]], dim=1)
    outcome = evaluate(regtta.Adapter(model, regtta.NoAdaptation()), Domain(inputs, targets), batch_size=20)
    predictions = model(inputs)
    for protocol in ("offline", "online"):
        each = [scores["r2"] for scores in outcome.outputs[protocol]]
        expected = r2_score(targets, predictions.detach(), multioutput="raw_values")
        assert each == pytest.approx(expected.tolist(), abs=1e-5)
    assert (
        evaluate(regtta.Adapter(small_models.mlp(), regtta.NoAdaptation()), problem()[2], batch_size=20).outputs == {}
    )


def test_classification_is_scored_by_accuracy_with_integer_labels_for_the_oracle():
    model, inputs = small_models.mlp(outputs=3), small_models.table(90)
    target = Domain(inputs, (inputs[:, :1] > 0).float())
    oracle = regtta.Oracle(task="classification", trainable="all", lr=0.05, batch_norm="source", steps=5)
    learned = evaluate(regtta.Adapter(model, oracle), target, batch_size=30, task="classification")
    plain = evaluate(regtta.Adapter(model, regtta.NoAdaptation()), target, batch_size=30, task="classification")
    right = (model(inputs).argmax(1) == target.targets[:, 0]).float().mean().item()
    assert plain.scores["offline"]["accuracy"] == pytest.approx(right)
    assert learned.scores["offline"]["accuracy"] > max(right, 0.8)
    assert plain.outputs == {}


def test_inputs_pass_through_the_view():
    model, source, target = problem()
    halved = Domain(target.inputs * 2, target.targets)
    method = regtta.SSA(k=3)
    seen = evaluate(regtta.Adapter(model, method, source), halved, batch_size=35, view=lambda inputs: inputs / 2)
    plain = evaluate(regtta.Adapter(model, method, source), target, batch_size=35)
    assert seen.to_dict() == plain.to_dict()


def test_accuracy_against_scikit_learn():
    logits, classes = torch.randn(50, 4), torch.randint(4, (50, 1)).float()
    expected = accuracy_score(classes[:, 0].int(), logits.argmax(1))
    assert compute_scores(logits, classes, "classification") == {"accuracy": pytest.approx(expected), "count": 50}


def test_non_finite_logits_have_no_accuracy():
    logits = torch.tensor([[1.0, torch.nan], [2.0, 0.0]])
    assert compute_scores(logits, torch.zeros(2, 1), "classification")["accuracy"] is None


def test_scores_over_all_outputs_and_by_output():
    predictions, targets = torch.randn(30, 3), torch.randn(30, 3)
    whole, each = compute_scores(predictions, targets), compute_output_scores(predictions, targets)
    assert whole["r2"] == pytest.approx(r2_score(targets, predictions), rel=1e-6)
    for column, scores in enumerate(each):
        assert scores["r2"] == pytest.approx(r2_score(targets[:, column], predictions[:, column]), rel=1e-6)
        assert scores["mae"] == pytest.approx(mean_absolute_error(targets[:, column], predictions[:, column]), rel=1e-6)
    assert compute_scores(torch.full((2, 1), torch.inf), torch.tensor([[0.0], [1.0]]))["r2"] is None


def test_an_unknown_task_raises():
    with pytest.raises(OptionError, match="the task"):
        compute_scores(torch.zeros(1, 1), torch.zeros(1, 1), "ranking")
