import torch
from torch import nn

from helpers import small_models
from regtta.models.fingerprints import digest_tensors, fingerprint


def test_fingerprint_depends_on_names_shapes_and_values_but_not_on_batch_counters():
    net = small_models.mlp()
    mark = fingerprint(net)
    assert len(mark) == 64
    net[1].num_batches_tracked += 5
    net.train()
    assert fingerprint(net) == mark
    with torch.no_grad():
        net[1].running_mean[0] += 1e-6
    assert fingerprint(net) != mark
    flat, column = nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        column.weight.copy_(flat.weight.T)
    assert fingerprint(flat) != fingerprint(column)
    assert fingerprint(nn.Sequential(flat)) != fingerprint(nn.ModuleDict({"a": flat}))
    assert fingerprint(nn.Linear(2, 1).bfloat16()) != fingerprint(nn.Linear(2, 1))


def test_digest_of_a_strided_tensor_equals_that_of_its_copy():
    value = torch.arange(4).to(torch.complex64)[::2][:1]
    assert value.stride() == (2,)
    assert digest_tensors({"a": value}) == digest_tensors({"a": value.clone().reshape(1)})
    assert digest_tensors({"a": value}) != digest_tensors({"a": value + 1})
