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
from regtta.errors import BatchError, OptionError
from regtta.models.batches import BatchReader
from regtta.models.model_inputs import ModelInputs


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


# --- models with several inputs, or with names ---------------------------------------------------------


class OneRequired(nn.Module):
    def forward(self, ids, mask=None): ...


class TwoRequired(nn.Module):
    def forward(self, image, table, scale=1.0): ...


class NoneRequired(nn.Module):
    def forward(self, input_ids=None, attention_mask=None, labels=None, **options): ...


class AnyArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, *args, **kwargs): ...


class Wrapper(nn.Module):
    """Wrapper around one module, such as those of torch.compile and peft."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs): ...


class LabelRequired(nn.Module):
    def forward(self, x, y): ...


A, B, MASK = torch.randn(4, 3), torch.randn(4, 2), torch.ones(4, 3)
Fields = namedtuple("Fields", ["table", "image", "labels"])


def read(model, batch, selection=None):
    """Return what is passed to the model: names of keyword arguments, or positions, with their tensors."""
    found = BatchReader(model, selection)(batch)
    if isinstance(found, torch.Tensor):
        return found
    return found.kwargs or found.args


def assert_same_arguments(found, expected):
    if isinstance(expected, torch.Tensor):
        assert found is expected
        return
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = tuple(found.values()), tuple(expected.values())
    assert len(found) == len(expected)
    assert all(a is b for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("model", "batch", "expected"),
    [
        (OneRequired(), A, A),
        (OneRequired(), (A, Y), A),
        (OneRequired(), {"ids": A, "labels": Y}, A),
        (OneRequired(), {"ids": A, "mask": MASK, "labels": Y, "text": ["a"] * 4}, {"ids": A, "mask": MASK}),
        (OneRequired(), {"tokens": A}, A),
        (OneRequired(), {"tokens": A, "y": Y}, A),
        (OneRequired(), ({"ids": A, "mask": MASK}, Y), {"ids": A, "mask": MASK}),
        (OneRequired(), ((A,), Y), A),
        (TwoRequired(), (A, B), (A, B)),
        (TwoRequired(), [A, B, Y], (A, B)),
        (TwoRequired(), ((A, B), Y), (A, B)),
        (TwoRequired(), [[A, B]], (A, B)),
        (TwoRequired(), {"table": B, "image": A, "price": Y}, {"table": B, "image": A}),
        (TwoRequired(), {"table": B, "image": A, "scale": 2.0}, {"table": B, "image": A, "scale": 2.0}),
        (TwoRequired(), Fields(B, A, Y), {"table": B, "image": A}),
        (NoneRequired(), A, A),
        (NoneRequired(), (A,), A),
        (
            NoneRequired(),
            {"input_ids": A, "attention_mask": MASK, "labels": Y},
            {"input_ids": A, "attention_mask": MASK},
        ),
        (NoneRequired(), {"input_ids": A, "labels": Y}, A),
        (Wrapper(TwoRequired()), {"table": B, "image": A}, {"table": B, "image": A}),
        (Wrapper(Wrapper(TwoRequired())), (A, B), (A, B)),
        (AnyArguments(), (A, Y), A),
        (LabelRequired(), {"x": A, "y": B}, {"x": A, "y": B}),
        (LabelRequired(), (A, B), (A, B)),
    ],
)
def test_the_parameters_of_forward_decide_what_is_an_input(model, batch, expected):
    assert_same_arguments(read(model, batch), expected)


@pytest.mark.parametrize(
    ("model", "batch", "selection", "expected"),
    [
        (OneRequired(), {"a": A, "b": B}, "b", B),
        (OneRequired(), (A, B), 1, B),
        (OneRequired(), (A, B), -1, B),
        (OneRequired(), Fields(B, A, Y), "image", A),
        (OneRequired(), {"ids": A, "mask": MASK}, "mask", MASK),
        (OneRequired(), (A, MASK, Y), [0, 1], (A, MASK)),
        (OneRequired(), {"ids": A, "mask": MASK}, ["mask", "ids"], {"mask": MASK, "ids": A}),
        (OneRequired(), {"tokens": A, "kept": MASK}, ["tokens", "kept"], (A, MASK)),
        (OneRequired(), {"tokens": A, "kept": MASK}, ("tokens",), (A,)),
        (NoneRequired(), (A, MASK), [0, 1], (A, MASK)),
        (NoneRequired(), {"tokens": A, "kept": MASK}, ["tokens", "kept"], (A, MASK)),
        (NoneRequired(), {"input_ids": A, "more": B}, ["input_ids", "more"], {"input_ids": A, "more": B}),
        (AnyArguments(), {"a": A, "b": B}, ["a", "b"], {"a": A, "b": B}),
        (TwoRequired(), (Y, B, A), [2, 1], (A, B)),
        (TwoRequired(), {"a": A, "b": B}, lambda batch: ((batch["a"],), {"table": batch["b"]}), None),
        (TwoRequired(), {"a": A, "b": B}, lambda batch: ModelInputs((batch["a"],), {"table": batch["b"]}), None),
        (OneRequired(), {"a": {"b": A}}, lambda batch: batch["a"]["b"], A),
    ],
)
def test_inputs_are_selected_by_keys_indices_and_callables(model, batch, selection, expected):
    if expected is None:
        found = BatchReader(model, selection)(batch)
        assert found.args[0] is A
        assert found.kwargs["table"] is B
        return
    assert_same_arguments(read(model, batch, selection), expected)


@pytest.mark.parametrize(
    ("model", "batch", "selection", "message"),
    [
        (
            NoneRequired(),
            (A, MASK),
            None,
            r"two readings.*model\(input_ids=batch\[0\]\) with labels in batch\[1\].*"
            r"model\(input_ids=batch\[0\], attention_mask=batch\[1\]\).*inputs=0.*inputs=\[0, 1\]",
        ),
        (
            OneRequired(),
            ((A, MASK), Y),
            None,
            r"two readings.*batch\[0\]\[0\].*\(batch\[0\], {}\).*\(\(batch\[0\],\), {}\)",
        ),
        (TwoRequired(), A, None, r"needs \['image', 'table'\], and the batch is a single tensor"),
        (TwoRequired(), (A,), None, r"needs \['image', 'table'\], and the batch is a tuple of tensor \(4, 3\)"),
        (TwoRequired(), {"image": A}, None, r"needs \['image', 'table'\]"),
        (
            TwoRequired(),
            {"image": A, "x": B},
            None,
            r"keys here: \['image', 'x'\]; parameters.*\['image', 'table', 'scale'\]",
        ),
        (TwoRequired(), {"image": A, "table": B[:2]}, None, "Expected one row per sample in every tensor"),
        (OneRequired(), {"a": A, "b": B}, None, r"Pass inputs=<key>, or a list of keys.*parameters of OneRequired"),
        (OneRequired(), {"a": A}, ["a", "b"], "no key 'b'"),
        (OneRequired(), (A, B), 2, r"inputs=2 is an index, but the batch is a tuple of tensor \(4, 3\)"),
        (OneRequired(), (A, B), "x", "names a key, but the batch is a tuple"),
        (OneRequired(), A, ["ids"], "names a key, but the batch is a Tensor"),
        (OneRequired(), A, lambda batch: [batch], r"found list of tensor \(4, 3\)"),
        (
            OneRequired(),
            A,
            lambda batch: (batch, batch),
            r"found tuple of tensor.*lambda batch: \(\(batch\[0\], batch\[1\]\), {}\)",
        ),
        (OneRequired(), A, lambda batch: {"ids": batch}, "found dict"),
        (OneRequired(), A, lambda batch: ((batch,), {1: batch}), "a dict with string keys"),
        (OneRequired(), A, lambda batch: None, "found NoneType"),
        (OneRequired(), A, lambda batch: ((), {}), "at least one tensor"),
        (OneRequired(), A, lambda batch: batch.sum(), "found a scalar"),
    ],
)
def test_batches_without_a_clear_reading_raise(model, batch, selection, message):
    with pytest.raises(BatchError, match=message):
        BatchReader(model, selection)(batch)


def test_the_three_fixes_for_a_nested_batch_work():
    class OneTuple(nn.Module):
        def forward(self, pair): ...

    batch = ((A, MASK), Y)
    assert BatchReader(OneRequired(), lambda b: b[0][0])(batch) is A
    assert BatchReader(OneRequired(), lambda b: (b[0], {}))(batch).args == (A, MASK)
    assert BatchReader(OneTuple(), lambda b: ((b[0],), {}))(batch).args == ((A, MASK),)


def test_a_model_that_takes_a_tuple_is_adapted():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.LayerNorm(5), nn.Linear(5, 1)

        def forward(self, pair):
            left, right = pair
            return self.fc(self.norm(torch.cat([left, right], dim=1)))

    torch.manual_seed(0)
    model, select = Pair(), lambda batch: ((batch[0],), {})
    batches = [((torch.randn(20, 3), torch.randn(20, 2)), torch.rand(20)) for _ in range(5)]
    source = regtta.collect(model, batches, inputs=select)
    assert regtta.Adapter(model, regtta.SSA(k=2), source, inputs=select).adapt(batches[0]).predictions.shape == (20, 1)


def test_arguments_that_were_read_before_are_returned():
    inputs = ModelInputs((A,), {"table": B})
    for selection in (None, "image", [0], len):
        assert BatchReader(TwoRequired(), selection)(inputs) is inputs


@pytest.mark.parametrize("selection", [True, False, 1.5, [], ["a", True], ["a", None], {"a"}])
def test_selections_are_validated(selection):
    with pytest.raises(OptionError, match="Expected inputs to be a key, an index, a list of them, or a callable"):
        BatchReader(OneRequired(), selection)


def test_a_model_that_rejects_the_arguments_names_the_option():
    adapter = regtta.Adapter(nn.Linear(3, 1), "source", inputs=[0, 1])
    with pytest.raises(BatchError, match=r"cannot be called with this batch.*forward\(\).*inputs=<key, index"):
        adapter.predict((A, B))
