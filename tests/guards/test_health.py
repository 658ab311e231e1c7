"""The health check, at, just below and just above its limit."""

import itertools

import torch

from helpers.guard_inputs import guard_context, incoming_batch
from regtta.guards import (
    HealthCheck,
    MarkGood,
    Rollback,
    StepStats,
)


def health(every=1):
    return HealthCheck(every=every, memory=1).start(guard_context())


def whitened_rows(offset):
    """Return features with the source's variances and whitened mean ``offset`` in the first direction."""
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    return signs * torch.tensor([2.0, 1.0, 0.01]) + torch.tensor([1.0 + 2 * offset, 0, 0])


def test_health_check_marks_models_that_are_not_further_from_the_source():
    for now, expected in ((0.99, MarkGood()), (1.0, MarkGood()), (1.01, Rollback)):
        state = health()
        assert state.after_step(StepStats()) is None  # not compared before the model has been adapted
        state.before_step(incoming_batch(whitened_rows(1.0), whitened_rows(now), moved=True))
        ruling = state.after_step(StepStats())
        assert ruling == expected if isinstance(expected, MarkGood) else ruling.to == "good"


def test_health_check_runs_every_n_steps_and_counts_consecutive_failures():
    state = health(every=2)
    rulings = []
    for now in (2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0):
        state.before_step(incoming_batch(whitened_rows(1.0), whitened_rows(now), moved=True))
        ruling = state.after_step(StepStats())
        rulings.append(ruling.to if isinstance(ruling, Rollback) else ruling)
    assert rulings == [None, "good", None, "source", None, MarkGood(), None, "good", None, "source", None, "source"]
