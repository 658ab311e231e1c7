from collections import namedtuple

import pytest
import torch
from torch.nn.utils import rnn

from regtta.errors import BatchError
from regtta.models.model_inputs import ModelInputs, describe_sample, dummy_sample, input_tensors

Pair = namedtuple("Pair", ["left", "right"])


def nested():
    return ModelInputs(
        (torch.arange(8.0).reshape(4, 2), [torch.arange(4), "text"], Pair(torch.ones(4, 3), None)),
        {"more": {"mask": torch.tensor([True, False, True, True])}, "scale": torch.tensor(2.0), "flag": True},
    )


def test_tensors_are_found_in_every_container_and_constants_are_not():
    inputs = nested()
    assert len(inputs) == 4
    assert inputs.shape == ((4, 2), (4,), (4, 3), (4,))
    assert len(input_tensors(inputs)) == 4
    assert inputs.device == torch.device("cpu")
    assert repr(inputs) == "ModelInputs((4, 2), list, Pair, more=dict, scale=(), flag=bool)"


@pytest.mark.parametrize("rows", [slice(1, 3), torch.tensor([1, 2]), [1, 2], torch.tensor([False, True, True, False])])
def test_rows_are_selected_in_every_tensor(rows):
    part = nested()[rows]
    assert len(part) == 2
    assert part.args[0].tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert part.args[1][0].tolist() == [1, 2]
    assert part.args[1][1] == "text"
    assert isinstance(part.args[2], Pair)
    assert part.args[2].left.shape == (2, 3)
    assert part.kwargs["more"]["mask"].tolist() == [False, True]
    assert part.kwargs["scale"] == 2.0
    assert part.kwargs["flag"] is True


def test_no_rows():
    assert len(nested()[:0]) == 0
    assert nested()[:0].shape == ((0, 2), (0,), (0, 3), (0,))
    dummy = dummy_sample(nested()[:0])
    assert len(dummy) == 1
    assert dummy.args[0].tolist() == [[0.0, 0.0]]
    assert dummy_sample(torch.ones(0, 3)).shape == (1, 3)


def test_the_structure_depends_on_constants_and_not_on_values_of_tensors():
    inputs = nested()
    assert inputs.structure == inputs.map(lambda tensor: tensor + tensor).structure
    other = ModelInputs(inputs.args, {**inputs.kwargs, "flag": False})
    assert inputs.structure != other.structure


def test_tensors_can_be_replaced_in_order():
    inputs = nested()
    others = tuple(tensor.clone() for tensor in inputs.tensors)
    replaced = inputs.with_tensors(others)
    assert all(a is b for a, b in zip(replaced.tensors, others, strict=True))
    assert replaced.args[1][1] == "text"


def test_moving_moves_tensors_without_dimensions_as_well():
    moved = nested().to(torch.device("meta"))
    assert {tensor.device.type for tensor in moved.tensors} == {"meta"}
    assert moved.kwargs["scale"].device.type == "meta"


def test_copies_of_tensors_of_inference_mode_can_be_learned_from():
    with torch.inference_mode():
        inputs = ModelInputs((torch.ones(2, 3), torch.zeros(2)))
    assert inputs.is_inference()
    assert not inputs.clone().is_inference()
    assert not nested().is_inference()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "at least one tensor"),
        (("text", 3), "at least one tensor"),
        ((torch.tensor(1.0),), "at least one tensor"),
        ((torch.ones(3, 2), torch.ones(4)), r"one row per sample in every tensor.*\[\(3, 2\), \(4,\)\].*inputs="),
        ((torch.ones(3, 2), rnn.pack_sequence([torch.ones(3, 5), torch.ones(2, 5)])), "one row per sample"),
    ],
)
def test_arguments_without_one_row_per_sample_raise(args, message):
    with pytest.raises(BatchError, match=message):
        ModelInputs(args)


def test_samples_are_described_by_the_shapes_and_dtypes_of_their_tensors():
    inputs = ModelInputs((torch.zeros(4, 3),), {"ids": torch.zeros(4, 7, dtype=torch.int64)})
    assert describe_sample(inputs) == "(3,) of torch.float32, (7,) of torch.int64"
