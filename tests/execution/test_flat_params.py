import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regtta.execution.flat_params import ALIGNED, flatten_storage, unmovable_tensors

SHAPES = st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=6)


@settings(deadline=None)
@given(SHAPES, st.integers(0, 2**16))
def test_tensors_keep_shape_strides_values_and_identity(shapes, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    before = [(id(t), t.shape, t.stride(), t.clone()) for t in tensors]
    [flat] = flatten_storage(tensors)
    for tensor, (name, shape, stride, value) in zip(tensors, before, strict=True):
        assert (id(tensor), tensor.shape, tensor.stride()) == (name, shape, stride)
        assert torch.equal(tensor, value)
        assert tensor.untyped_storage().data_ptr() == flat.whole.untyped_storage().data_ptr()
        assert tensor.storage_offset() % ALIGNED == 0
    flat.whole.mul_(2)
    assert all(torch.equal(tensor, 2 * value) for tensor, (*_, value) in zip(tensors, before, strict=True))
    torch.testing.assert_close(flat.whole.sum(), 2 * sum(value.sum() for *_, value in before), rtol=1e-4, atol=1e-4)


def test_channels_last_weights_keep_their_layout():
    weight = nn.Parameter(torch.randn(4, 3, 3, 3).contiguous(memory_format=torch.channels_last))
    value = weight.detach().clone()
    flatten_storage([torch.ones(3), weight])
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(weight, value)


def test_dtypes_are_stored_separately_and_order_is_kept():
    tensors = [torch.ones(2), torch.ones(3, dtype=torch.int64), torch.zeros(4)]
    floats, integers = flatten_storage(tensors)
    assert (floats.whole.dtype, integers.whole.dtype) == (torch.float32, torch.int64)
    assert [id(part) for part in floats.parts] == [id(tensors[0]), id(tensors[2])]
    assert floats.first({id(tensors[0])}).whole.numel() == ALIGNED
    assert floats.first({id(tensors[2])}) is None
    assert floats.first({id(tensors[0]), id(tensors[2])}) is floats


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(1).expand(3), torch.ones(4, 4)[:, ::2], torch.ones(2, 2).to_sparse(), torch.ones(0)],
    ids=["expanded", "with gaps", "sparse", "empty"],
)
def test_tensors_that_cannot_be_flattened_are_not_moved(tensor):
    flat, separate = flatten_storage([torch.zeros(2), tensor])
    assert separate.parts == (tensor,)
    assert len(flat.parts) == 1


def test_shared_and_recurrent_weights_are_not_moved():
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "rnn": nn.LSTM(3, 4)})
    model["b"].weight.data = model["a"].weight.data
    unmovable = {id(tensor) for tensor in unmovable_tensors(model)}
    expected = [model["a"].weight, model["b"].weight, *model["rnn"].parameters()]
    assert unmovable == {id(tensor) for tensor in expected}
    flatten_storage(model.parameters(), unmovable_tensors(model))
    with torch.no_grad():
        model["a"].weight.fill_(7)
    assert (model["b"].weight == 7).all()


def test_a_deep_copy_has_its_own_storage():
    layer = nn.Linear(2, 2)
    [flat] = flatten_storage(layer.parameters())
    other = copy.deepcopy(layer)
    flat.whole.zero_()
    assert (other.weight != 0).all()
