from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import rnn
from torch.utils.data import DataLoader, TensorDataset

import regtta
from helpers import small_models
from regtta.errors import BatchError
from regtta.models.batches import BatchReader


def extract_inputs(batch, key=None):
    """Return the inputs of ``batch`` for a model that takes one tensor."""
    return BatchReader(nn.Identity(), key)(batch)


def test_inputs_are_extracted_from_every_kind_of_batch():
    x, y = torch.randn(3, 2), torch.randn(3)
    for batch, key in [(x, None), ((x, y), None), ([x, y], None), ({"a": x}, None), ({"a": x, "b": y}, "a")]:
        assert extract_inputs(batch, key) is x


@pytest.mark.parametrize(
    ("batch", "key", "message"),
    [
        ({"a": 1, "b": 2}, None, r"no inputs=<key> was given.*\['a', 'b'\]"),
        ({"a": 1, "b": 2}, "c", r"no key 'c'.*\['a', 'b'\]"),
        ((torch.zeros(2), 1), "a", "names a key, but the batch is a tuple"),
        ((), None, "found tuple"),
        ("text", None, "found str"),
        ({"a": [[1.0]]}, "a", "found list"),
        (torch.tensor(1.0), None, "found a scalar"),
    ],
)
def test_invalid_batches_raise_a_batch_error(batch, key, message):
    with pytest.raises(BatchError, match=message):
        extract_inputs(batch, key)


X, Y = torch.randn(4, 5), torch.randn(4)
IMAGES = torch.randn(4, 3, 8, 8)
Named = namedtuple("Named", ["x", "lengths", "graph"])


@pytest.mark.parametrize(
    "batch",
    [
        [X],
        (X,),
        (X, Y),
        [X, Y],
        [X, Y[:, None]],
        [X, X.clone()],  # an autoencoder's
        [IMAGES, IMAGES.clone()],
        [IMAGES, IMAGES.clone(), torch.rand(4)],
        [IMAGES, IMAGES.clone(), IMAGES > 0],  # a mask
        [X, Y, torch.rand(4)],
        [X, X.clone(), X.clone()],  # a target and weights for each of several outputs
        (X, {"label": Y}),
        (X, ["a", "b", "c", "d"]),
        (X, [Y, Y[:2]]),
        (X, np.zeros(3)),
        (X, None),
        (X, 0.5),
        (X, Y, torch.tensor(0.1)),  # a number beside the labels
        (X[:1], torch.tensor(0.1)),
        (X[:0], Y[:0]),
        (torch.arange(4), Y, Y),  # numbers for an embedding
        Named(X, torch.tensor([1, 2]), torch.zeros(2, 9)),
        {"x": [X, Y]},
    ],
)
def test_the_first_element_is_the_inputs(batch):
    expected = batch["x"][0] if isinstance(batch, dict) else batch[0]
    assert extract_inputs(batch) is expected


@pytest.mark.parametrize("tensors", [(X,), (X, Y), (X, Y, Y), (IMAGES, IMAGES), (torch.arange(4), Y)])
def test_every_batch_of_a_loader_over_tensors(tensors):
    for size in (1, 2, 3):
        rows = [extract_inputs(batch) for batch in DataLoader(TensorDataset(*tensors), batch_size=size)]
        assert torch.equal(torch.cat(rows), tensors[0])


@given(
    rows=st.integers(0, 6),
    shape=st.lists(st.integers(1, 4), max_size=3),
    labels=st.lists(st.integers(1, 3), max_size=2),
    others=st.lists(st.sampled_from(["text", None, 1.5, {"a": 1}]), max_size=2),
    kind=st.sampled_from([tuple, list]),
)
def test_inputs_and_labels_of_any_shape(rows, shape, labels, others, kind):
    x, y = torch.zeros(rows, *shape), torch.zeros(rows, *labels)
    assert extract_inputs(kind([x, y, *others])) is x
    assert extract_inputs(kind([x, *others])) is x


@given(
    count=st.integers(3, 9),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    kind=st.sampled_from([tuple, list]),
    key=st.booleans(),
)
def test_a_list_of_samples_is_rejected_and_both_suggested_fixes_work(count, shape, kind, key):
    samples = [torch.randn(shape) for _ in range(count)]
    if len(shape) == 2 and count < 5:  # tables with weights and masks
        assert extract_inputs(kind(samples)) is samples[0]
        return
    with pytest.raises(BatchError, match=r"torch.stack\(batch\).*batch\[0\]"):
        extract_inputs({"x": kind(samples)} if key else kind(samples))
    assert extract_inputs(torch.stack(samples)).shape == (count, *shape)
    assert extract_inputs(samples[0]) is samples[0]


@given(lengths=st.lists(st.integers(1, 9), min_size=2, max_size=5), kind=st.sampled_from([tuple, list]))
def test_tensors_with_other_numbers_of_rows_are_not_labels(lengths, kind):
    batch = kind([torch.zeros(length, 2) for length in lengths])
    if len(set(lengths)) > 1:
        with pytest.raises(BatchError, match="must have one row per sample.*pad_sequence"):
            extract_inputs(batch)
        assert len(extract_inputs(rnn.pad_sequence(list(batch), batch_first=True))) == len(lengths)


@pytest.mark.parametrize("label", [torch.tensor(0.5), torch.tensor([0.5])])
def test_one_sample_of_a_dataset_is_not_a_batch(label):
    with pytest.raises(BatchError, match=r"for one sample x.unsqueeze\(0\)"):
        extract_inputs((IMAGES[0], label))
    assert extract_inputs((IMAGES[:1], label)).shape == (1, 3, 8, 8)


@pytest.fixture
def packed():
    return rnn.pack_sequence([torch.randn(3, 5), torch.randn(2, 5)])


def test_packed_sequences_are_rejected_at_any_position(packed):
    for batch, key in [(packed, None), ((packed, Y), None), ([packed], None), ({"x": packed}, "x")]:
        with pytest.raises(BatchError, match="PackedSequence.*pad_packed_sequence"):
            extract_inputs(batch, key)
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True)
    assert extract_inputs((padded, lengths)).shape == (2, 3, 5)


def test_every_public_function_rejects_packed_sequences(packed):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(-3), nn.Linear(4, 1)
    )
    source = regtta.collect(small_models.update_running_statistics(model, IMAGES), [IMAGES])
    adapter = regtta.Adapter(model, regtta.SSA(k=2), source)
    for wrong in (list(IMAGES.repeat(2, 1, 1, 1)), packed):
        for call in (adapter.predict, adapter.adapt, adapter.features, lambda x: regtta.collect(model, [x])):
            with pytest.raises(BatchError, match=r"torch.stack|pad_packed_sequence"):
                call(wrong)
    assert adapter.predict([IMAGES, IMAGES.sum(dim=(1, 2, 3))]).shape == (4, 1)
