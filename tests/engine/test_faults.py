"""A stream with injected faults gives bit-identical predictions to the same stream without them."""

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


def make_adapter(source, *extra_guards):
    return regtta.Adapter(
        small_models.mlp(), regtta.SSA(k=4), source, guards=(*DEFAULT, BoundedDisplacement(), *extra_guards)
    )


def make_stream():
    return small_models.table(BATCHES * 16, shift=1.0, seed=2).split(16)


def fault_indices():
    """Return the indices of the batches with a fault: a random half of them."""
    return set(torch.randperm(BATCHES, generator=torch.Generator().manual_seed(0))[:INJECTED].tolist())


@pytest.mark.parametrize("fault", SPOILING)
def test_a_spoiled_batch_is_predicted_and_changes_nothing(source, fault):
    spoil, faulty_batches = SPOILING[fault], fault_indices()
    reference, faulted = make_adapter(source), make_adapter(source)
    count = 0
    for number, batch in enumerate(make_stream()):
        if number in faulty_batches:
            spoiled = spoil(batch)
            step = faulted.adapt(spoiled)
            assert not step.diagnostics.verdict.learned
            assert len(step.predictions) == len(spoiled)
            torch.testing.assert_close(step.predictions, faulted.predict(spoiled), rtol=1e-4, atol=0.0, equal_nan=True)
            count += 1
        assert torch.equal(faulted.adapt(batch).predictions, reference.adapt(batch).predictions)
    assert count == INJECTED


@pytest.mark.parametrize("fault", SINGLE)
def test_bad_samples_do_not_affect_the_rest_of_their_batch(source, fault):
    faulty_batches = fault_indices()
    reference, faulted = make_adapter(source), make_adapter(source)
    count = 0
    for number, batch in enumerate(make_stream()):
        given = SINGLE[fault](batch) if number in faulty_batches else batch
        step, expected = faulted.adapt(given), reference.adapt(batch)
        assert step.diagnostics == expected.diagnostics
        assert torch.equal(step.predictions[: len(batch)], expected.predictions)
        count += step.excluded_rows == (16, 17)
    assert count == INJECTED


class Vetoing(Guard):
    """Vetoes every step while armed."""

    armed = False

    def after_step(self, outcome):
        return "vetoed" if Vetoing.armed else None


@pytest.mark.parametrize("fault", BREAKING)
def test_a_failed_step_changes_nothing(source, fault, monkeypatch):
    faulty_batches = fault_indices()
    reference, faulted = make_adapter(source, Vetoing()), make_adapter(source, Vetoing())
    rule = faulted._session.stream.learner.rule
    count = 0
    for number, batch in enumerate(make_stream()):
        if number in faulty_batches:
            with monkeypatch.context() as patch:
                if fault == "an error in the model's forward pass":
                    hook = faulted.model[5].register_forward_hook(_raise_out_of_memory)
                    with pytest.raises(RuntimeError, match="out of memory"):
                        faulted.adapt(batch)
                    hook.remove()
                else:
                    if fault == "a loss that is not a number":
                        patch.setattr(rule, "variance", rule.variance * torch.nan)
                    elif fault == "a step that takes the weights too far":
                        patch.setitem(faulted._session.stream.learner._optimizer.optimizer.param_groups[0], "lr", 100.0)
                    else:
                        patch.setattr(Vetoing, "armed", True)
                    step = faulted.adapt(batch)
                    assert not step.diagnostics.verdict.learned
                    assert torch.equal(step.predictions, faulted.predict(batch))
            count += 1
        assert torch.equal(faulted.adapt(batch).predictions, reference.adapt(batch).predictions)
    assert count == INJECTED


def _raise_out_of_memory(module, args, output):
    raise RuntimeError("out of memory")
