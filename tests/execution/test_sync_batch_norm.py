"""BatchNorm over several processes is BatchNorm over all their samples; in one process it is torch's own."""

import pytest
import torch
from torch import nn

from helpers.process_groups import run_in_processes
from regtta.execution.distributed import make_communicator
from regtta.execution.sync_batch_norm import BatchSharding
from regtta.models.batch_norm import BatchNormSwitch

KINDS = {
    "1d": (nn.BatchNorm1d, (5,)),
    "2d": (nn.BatchNorm2d, (5, 4, 3)),
    "no affine": (lambda width: nn.BatchNorm1d(width, affine=False), (5,)),
    "cumulative": (lambda width: nn.BatchNorm1d(width, momentum=None), (5,)),
    "untracked": (lambda width: nn.BatchNorm1d(width, track_running_stats=False), (5,)),
}


def scene(kind):
    torch.manual_seed(0)
    make, shape = KINDS[kind]
    layer = make(5).double()
    if layer.affine:
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    return layer, 3 * torch.randn(12, *shape, dtype=torch.float64) + 100, torch.randn(12, *shape, dtype=torch.float64)


def passed(layer, x, slopes):
    """Output, gradients of input and parameters, and running statistics after a pass."""
    x = x.clone().requires_grad_()
    output = layer(x)
    (output * slopes).sum().backward()
    gradients = [parameter.grad for parameter in layer.parameters()]
    return output.detach(), x.grad, gradients, {name: value.clone() for name, value in layer.named_buffers()}


@pytest.mark.parametrize("kind", KINDS)
def test_alone_it_is_the_layers_own(kind):
    layer, x, slopes = scene(kind)
    expected = passed(layer.train(), x, slopes)
    layer, *_ = scene(kind)
    layer.forward = lambda inputs: BatchSharding().normalise(layer, inputs)
    torch.testing.assert_close(passed(layer, x, slopes), expected)


def _part(group, kind, sizes):
    layer, x, slopes = scene(kind)
    rank = group.rank()
    start = sum(sizes[:rank])
    rows = slice(start, start + sizes[rank])
    switch = BatchNormSwitch([layer.eval()], "batch")
    empty = sizes[rank] == 0
    switch.begin_adaptation(sum(sizes), BatchSharding(make_communicator(group), empty=empty))
    # One without samples runs on one that stands for nothing, and asks nothing of it.
    own = (torch.full_like(x[:1], 7.0), torch.zeros_like(x[:1])) if empty else (x[rows], slopes[rows])
    result = passed(layer, *own)
    switch.extra_pass(layer, own[0] + 50)  # must not move what the pass before has moved
    assert all(torch.equal(value, result[-1][name]) for name, value in layer.named_buffers())
    switch.end_adaptation()
    assert "forward" not in layer.__dict__
    return result


@pytest.mark.parametrize("sizes", [[6, 6], [1, 11], [3, 0, 9]])
def test_dealt_to_processes_it_is_the_same(tmp_path, sizes):
    for kind in KINDS:
        layer, x, slopes = scene(kind)
        output, gradient, gradients, running = passed(layer.train(), x, slopes)
        found = run_in_processes(len(sizes), _part, tmp_path / kind, kind, sizes)
        full = [part for part, size in zip(found, sizes, strict=True) if size]
        torch.testing.assert_close(torch.cat([part[0] for part in full]), output)
        torch.testing.assert_close(torch.cat([part[1] for part in full]), gradient)
        for number, expected in enumerate(gradients):
            torch.testing.assert_close(sum(part[2][number] for part in found), expected)
        for *_, theirs in found:
            torch.testing.assert_close(theirs, running)
