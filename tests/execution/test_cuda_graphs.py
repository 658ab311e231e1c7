"""How a replay deals with what can and cannot be captured; what it does to a model is in test_execution_of_streams."""

import logging

import pytest
import torch

from regtta.execution.cuda_graphs import MAX_GRAPHS, WARMUP_CALLS, GraphedCallable

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def counting(weight, **options):
    """A function that adds to ``weight`` in place, and its replay."""

    def body(x):
        weight.add_(x.sum())
        return x * 2, weight.clone()

    return GraphedCallable(body, "A test", tolerance=1e-5, **options)


def test_it_is_replayed_from_the_fourth_call_on_and_gives_the_same():
    weight, before = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    replay = counting(weight, undo=lambda: weight.copy_(before))
    total = 0.0
    for number in range(8):
        x = torch.full((3,), float(number), device="cuda")
        before.copy_(weight)
        doubled, sum_ = replay(x)
        total += 3 * number
        assert torch.equal(doubled, 2 * x)
        assert sum_.item() == weight.item() == total
        assert replay.graphs == (number >= WARMUP_CALLS)


def test_results_are_left_alone_by_later_calls():
    replay = GraphedCallable(lambda x: (x + 1,), "A test", tolerance=1e-5)
    results = [replay(torch.full((2,), float(number), device="cuda"))[0] for number in range(6)]
    assert [result[0].item() for result in results] == [1, 2, 3, 4, 5, 6]


def test_what_reads_from_the_device_is_told_once_and_made_as_before(caplog):
    replay = GraphedCallable(lambda x: (x * x.sum().item(),), "A test", tolerance=1e-5)
    with caplog.at_level(logging.WARNING, "regtta"):
        for _ in range(6):
            assert replay(torch.ones(3, device="cuda"))[0].tolist() == [3, 3, 3]
    assert caplog.text.count("A test cannot be captured") == 1
    assert replay.graphs == 0
    assert torch.ones(3, device="cuda").sum().item() == 3  # the device is as well as before


def test_no_more_than_so_many_shapes_are_kept(caplog):
    replay = GraphedCallable(lambda x: (x + 1,), "A test", tolerance=1e-5)
    with caplog.at_level(logging.WARNING, "regtta"):
        for size in range(1, MAX_GRAPHS + 3):
            for _ in range(WARMUP_CALLS + 2):
                assert replay(torch.zeros(size, device="cuda"))[0].tolist() == [1] * size
    assert replay.graphs == MAX_GRAPHS
    assert f"is already captured for {MAX_GRAPHS} batch shapes" in caplog.text
    replay.reset()
    assert replay.graphs == 0
