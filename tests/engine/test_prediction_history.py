"""Stored predictions of recent batches: memory, labels that fit, and states from files."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regtta.engine.prediction_history import PredictedBatch, PredictionHistory, read_labels
from regtta.errors import BatchError, StateError


def make(sizes, memory=100, outputs=(2,)):
    history = PredictionHistory(memory)
    for step, size in enumerate(sizes):
        values = torch.arange(float(size * math.prod(outputs))).reshape(size, *outputs) + step
        history.record(step, values, values + 0.5, step / len(sizes))
    return history


def stored(history, steps):
    found = []
    for step in range(steps):
        try:
            history.find(step, steps)
            found.append(step)
        except BatchError:
            pass
    return found


@given(st.lists(st.integers(0, 12), max_size=12), st.integers(1, 30))
def test_the_newest_batches_that_fit_into_the_memory_are_kept(sizes, memory):
    kept, total = [], 0
    for step in reversed(range(len(sizes))):
        if not sizes[step]:
            continue
        if kept and total + sizes[step] > memory:
            break
        kept.insert(0, step)
        total += sizes[step]
    history = make(sizes, memory)
    assert stored(history, len(sizes)) == kept
    assert history.samples == total


def test_a_dropped_step_is_named_with_the_option_that_keeps_it():
    history = make([5, 5, 5], memory=10)
    with pytest.raises(BatchError, match=r"step 0 are no longer stored: feedback_memory=10 .* to step 1\. .*larger"):
        history.find(0, 3)


@pytest.mark.parametrize("index", [-1, 3, 2**70])
def test_a_step_that_has_not_been_is_an_error(index):
    with pytest.raises(BatchError, match="one of the 3 steps"):
        make([5, 5, 5]).find(index, 3)


@pytest.mark.parametrize("index", [None, "1", 1.0, True])
def test_an_index_of_another_type_is_an_error(index):
    with pytest.raises(BatchError, match="Pass step.index"):
        make([5]).find(index, 1)


def batch(shape=(4, 1)):
    return PredictedBatch(torch.zeros(shape), torch.zeros(shape), 0.5, torch.zeros(shape[0], dtype=torch.bool))


@pytest.mark.parametrize(
    ("y", "rows", "expected"),
    [
        (torch.arange(4.0), None, [0, 1, 2, 3]),
        (torch.arange(4.0)[:, None], None, [0, 1, 2, 3]),
        ([2.0], [3], [3]),
        (np.array([1.0, 2.0]), np.array([2, 0]), [2, 0]),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), [1, 3]),
        (torch.ones(2), range(1, 3), [1, 2]),
        (torch.ones(0), [], []),
    ],
)
def test_labels_may_be_tensors_arrays_or_lists_of_any_rows(y, rows, expected):
    chosen, labels = read_labels(batch(), y, rows)
    assert chosen == expected
    assert labels.shape == (len(expected), 1)
    assert labels.flatten().tolist() == torch.as_tensor(y).double().flatten().tolist()


@pytest.mark.parametrize(
    ("y", "rows", "words"),
    [
        (torch.ones(3), None, r"shape \(4, 1\).*found \(3,\).*rows="),
        (torch.ones(4, 2), None, r"shape \(4, 1\)"),
        (torch.ones(2), [0, 0], "different rows from 0 to 3"),
        (torch.ones(1), [4], "different rows"),
        (torch.ones(1), [-1], "different rows"),
        (torch.ones(1), [True], "positions"),
        (torch.ones(1), torch.tensor([True, False, False, False]), "positions"),
        (torch.ones(1), 0, "positions"),
        (torch.ones(1), "0", "positions"),
        (torch.ones(1), [0.0], "positions"),
        ("labels", None, "tensor or an array"),
        (None, None, "tensor or an array"),
        (torch.tensor([0.0, math.nan, 0.0, 0.0]), None, "finite labels"),
        (torch.tensor([math.inf]), [1], "finite labels"),
    ],
)
def test_labels_that_do_not_fit_are_errors(y, rows, words):
    with pytest.raises(BatchError, match=words):
        read_labels(batch(), y, rows)


def test_labels_of_one_output_are_not_accepted_for_several():
    with pytest.raises(BatchError, match=r"shape \(4, 2\)"):
        read_labels(batch((4, 2)), torch.ones(4), None)


@pytest.mark.parametrize("outputs", [(), (1,), (3, 2)])
def test_a_state_restores_every_batch(outputs):
    history = make([3, 0, 4, 2], outputs=outputs)
    history.find(2, 4).labelled[1] = True
    again = PredictionHistory.from_state(history.state_dict(), "history", memory=100, steps=4)
    assert stored(again, 4) == [0, 2, 3]
    for step in (0, 2, 3):
        ours, theirs = history.find(step, 4), again.find(step, 4)
        assert torch.equal(ours.source, theirs.source)
        assert torch.equal(ours.adapted, theirs.adapted)
        assert torch.equal(ours.labelled, theirs.labelled)
        assert ours.weight == theirs.weight
    assert again.samples == 9


def test_a_smaller_memory_keeps_the_newest_batches():
    again = PredictionHistory.from_state(make([3, 4, 2]).state_dict(), "history", memory=6, steps=3)
    assert stored(again, 3) == [1, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": [0, 2, 1]}, "history/steps"),
        ({"steps": [0, 1, 3]}, "history/steps/2"),
        ({"steps": "012"}, "history/steps"),
        ({"steps": [0, 1]}, "history/shapes"),
        ({"shapes": [[3, 2], [4, 2]]}, "history/shapes"),
        ({"shapes": [[3, 2], [4, 2], []]}, "history/shapes/2"),
        ({"shapes": [[3, 2], [4, 2], [0, 2**40]]}, "history/shapes/2/0"),
        ({"shapes": [[3, 2], [4, 2], [2**40, 2**40]]}, "history/source"),
        ({"shapes": [[3, 2], [4, 2], [4, 1]]}, "history/labelled"),
        ({"shapes": [[3, 2], [4, 2], [1] * 9]}, "history/shapes/2"),
        ({"weights": torch.tensor([0.0, 0.5, 1.5], dtype=torch.float64)}, "history/weights"),
        ({"weights": torch.tensor([0.0, 0.5, math.nan], dtype=torch.float64)}, "history/weights"),
        ({"weights": torch.zeros(2, dtype=torch.float64)}, "history/weights"),
        ({"source": torch.zeros(18)}, "history/source"),
        ({"adapted": torch.zeros(17, dtype=torch.float64)}, "history/adapted"),
        ({"adapted": torch.zeros(18, dtype=torch.float64).to_sparse()}, "history/adapted"),
        ({"labelled": torch.zeros(9)}, "history/labelled"),
        ({"other": 1}, "history/other"),
    ],
)
def test_invalid_states_are_refused_by_the_name_of_the_field(changes, words):
    state = make([3, 4, 2]).state_dict()
    with pytest.raises(StateError, match=words):
        PredictionHistory.from_state(state | changes, "history", memory=100, steps=3)
