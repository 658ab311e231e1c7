import pytest
import torch
from sklearn.metrics import r2_score

import regtta
import zoo
from regtta.experiments.datasets import Domain
from regtta.experiments.protocol import evaluate, what_diverged


def problem():
    model = zoo.mlp()
    inputs = zoo.table(70, shift=0.8)
    targets = inputs.sum(1, keepdim=True)
    return model, regtta.collect(model, zoo.table(300).split(50)), Domain(inputs, targets)


def test_both_protocols_against_the_library_and_scikit_learn():
    model, source, target = problem()
    outcome = evaluate(regtta.Adapter(model, regtta.SSA(k=3), source), target, batch_size=23)
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source)
    online = torch.cat([step.predictions for step in adapter.run(target.inputs.split(23))])
    assert outcome.scores["online"].r2 == pytest.approx(r2_score(target.targets, online), rel=1e-6)
    assert outcome.scores["offline"].r2 == pytest.approx(
        r2_score(target.targets, adapter.predict(target.inputs)), rel=1e-6
    )
    assert (outcome.learned, dict(outcome.refused), outcome.diverged) == (3, {"a batch of 1 has no variance": 1}, "")


def test_labels_reach_the_oracle_alone():
    model, _, target = problem()
    outcome = evaluate(
        regtta.Adapter(model, regtta.Oracle(lr=0.02, trainable="all", batch_norm="source")), target, batch_size=10
    )
    plain = evaluate(regtta.Adapter(model, regtta.Source()), target, batch_size=10)
    assert outcome.scores["offline"].r2 > plain.scores["offline"].r2
    assert plain.diverged == ""  # it takes no step, and has nothing to train


def test_what_counts_as_diverged():
    model, source, target = problem()
    with torch.no_grad():
        model[4].weight[:2], model[4].bias[:2] = 0, -1
    source = regtta.collect(model, zoo.table(300).split(50))
    wild = evaluate(regtta.Adapter(model, regtta.SSA(k=12, clip=False), source), target, batch_size=35)
    assert wild.diverged == "loss, every step refused"
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source)
    steps = list(adapter.run(target.inputs.split(35)))
    assert what_diverged(steps, {"offline": torch.zeros(2)}, adapter) == ""
    assert what_diverged(steps, {"offline": torch.tensor([0.0, torch.nan])}, adapter) == "predictions"
    with torch.no_grad():
        adapter._model[4].weight[0] = torch.inf
    assert what_diverged(steps, {"offline": torch.zeros(2)}, adapter) == "weights"
