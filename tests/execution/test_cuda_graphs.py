"""Capturing and replaying functions; test_execution_of_streams tests the effect on adaptation."""

import logging

import pytest
import torch

from regtta.execution.cuda_graphs import MAX_GRAPHS, WARMUP_CALLS, GraphedCallable

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def make_accumulator(weight, **options):
    """Return a graphed function that adds to ``weight`` in place."""

    def body(x):
        weight.add_(x.sum())
        return x * 2, weight.clone()

    return GraphedCallable(body, "A test", tolerance=1e-5, **options)


def test_calls_are_replayed_after_the_warmup_with_the_same_results():
    weight, before = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    graphed = make_accumulator(weight, undo=lambda: weight.copy_(before))
    total = 0.0
    for number in range(8):
        x = torch.full((3,), float(number), device="cuda")
        before.copy_(weight)
        doubled, sum_ = graphed(x)
        total += 3 * number
        assert torch.equal(doubled, 2 * x)
        assert sum_.item() == weight.item() == total
        assert graphed.graphs == (number >= WARMUP_CALLS)


def test_results_are_not_overwritten_by_later_calls():
    graphed = GraphedCallable(lambda x: (x + 1,), "A test", tolerance=1e-5)
    results = [graphed(torch.full((2,), float(number), device="cuda"))[0] for number in range(6)]
    assert [result[0].item() for result in results] == [1, 2, 3, 4, 5, 6]


def test_a_function_that_synchronizes_is_logged_once_and_runs_eagerly(caplog):
    graphed = GraphedCallable(lambda x: (x * x.sum().item(),), "A test", tolerance=1e-5)
    with caplog.at_level(logging.WARNING, "regtta"):
        for _ in range(6):
            assert graphed(torch.ones(3, device="cuda"))[0].tolist() == [3, 3, 3]
    assert caplog.text.count("A test cannot be captured") == 1
    assert graphed.graphs == 0
    assert torch.ones(3, device="cuda").sum().item() == 3  # the device is still usable


def test_the_number_of_captured_shapes_is_bounded(caplog):
    graphed = GraphedCallable(lambda x: (x + 1,), "A test", tolerance=1e-5)
    with caplog.at_level(logging.WARNING, "regtta"):
        for size in range(1, MAX_GRAPHS + 3):
            for _ in range(WARMUP_CALLS + 2):
                assert graphed(torch.zeros(size, device="cuda"))[0].tolist() == [1] * size
    assert graphed.graphs == MAX_GRAPHS
    assert f"is already captured for {MAX_GRAPHS} batch shapes" in caplog.text
    graphed.reset()
    assert graphed.graphs == 0
