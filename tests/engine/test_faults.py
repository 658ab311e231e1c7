"""A stream with faults in it predicts and learns, bit for bit, as the same stream without them."""

import pytest
import torch

import regtta
from helpers import small_models
from helpers.faulty_streams import BREAKING, INJECTED, SINGLE, SPOILING
from regtta.guards import DEFAULT, BoundedDisplacement, Guard

BATCHES = 100


@pytest.fixture(scope="module")
def source():
    return regtta.collect(small_models.mlp(), small_models.table(400).split(50))


def adapter_of(source, *more):
    return regtta.Adapter(small_models.mlp(), regtta.SSA(k=4), source, guards=(*DEFAULT, BoundedDisplacement(), *more))


def healthy():
    return small_models.table(BATCHES * 16, shift=1.0, seed=2).split(16)


def places():
    """Before which batches a fault comes: half of them, at random."""
    return set(torch.randperm(BATCHES, generator=torch.Generator().manual_seed(0))[:INJECTED].tolist())


@pytest.mark.parametrize("fault", SPOILING)
def test_a_spoiled_batch_is_predicted_and_costs_nothing(source, fault):
    spoil, before = SPOILING[fault], places()
    spared, struck = adapter_of(source), adapter_of(source)
    survived = 0
    for number, batch in enumerate(healthy()):
        if number in before:
            spoiled = spoil(batch)
            step = struck.adapt(spoiled)
            assert not step.diagnostics.verdict.learned
            assert len(step.predictions) == len(spoiled)
            torch.testing.assert_close(step.predictions, struck.predict(spoiled), rtol=1e-4, atol=0.0, equal_nan=True)
            survived += 1
        assert torch.equal(struck.adapt(batch).predictions, spared.adapt(batch).predictions)
    assert survived == INJECTED


@pytest.mark.parametrize("fault", SINGLE)
def test_bad_samples_cost_the_rest_of_their_batch_nothing(source, fault):
    before = places()
    spared, struck = adapter_of(source), adapter_of(source)
    survived = 0
    for number, batch in enumerate(healthy()):
        given = SINGLE[fault](batch) if number in before else batch
        step, expected = struck.adapt(given), spared.adapt(batch)
        assert step.diagnostics == expected.diagnostics
        assert torch.equal(step.predictions[: len(batch)], expected.predictions)
        survived += step.excluded_rows == (16, 17)
    assert survived == INJECTED


class Vetoing(Guard):
    """Vetoes every step while armed."""

    armed = False

    def after_step(self, outcome):
        return "vetoed" if Vetoing.armed else None


@pytest.mark.parametrize("fault", BREAKING)
def test_a_step_that_breaks_costs_nothing(source, fault, monkeypatch):
    before = places()
    spared, struck = adapter_of(source, Vetoing()), adapter_of(source, Vetoing())
    rule = struck._session.stream.learner.rule
    survived = 0
    for number, batch in enumerate(healthy()):
        if number in before:
            with monkeypatch.context() as faulty:
                if fault == "an error in the model's forward pass":
                    hook = struck.model[5].register_forward_hook(_burst)
                    with pytest.raises(RuntimeError, match="out of memory"):
                        struck.adapt(batch)
                    hook.remove()
                else:
                    if fault == "a loss that is not a number":
                        faulty.setattr(rule, "variance", rule.variance * torch.nan)
                    elif fault == "a step that takes the weights too far":
                        faulty.setitem(struck._session.stream.learner._optimizer.optimizer.param_groups[0], "lr", 100.0)
                    else:
                        faulty.setattr(Vetoing, "armed", True)
                    step = struck.adapt(batch)
                    assert not step.diagnostics.verdict.learned
                    assert torch.equal(step.predictions, struck.predict(batch))
            survived += 1
        assert torch.equal(struck.adapt(batch).predictions, spared.adapt(batch).predictions)
    assert survived == INJECTED


def _burst(module, args, output):
    raise RuntimeError("out of memory")
