"""BatchNorm in several processes matches BatchNorm over all their samples, and torch's BatchNorm in one process."""

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


def make_layer_and_inputs(kind):
    torch.manual_seed(0)
    make, shape = KINDS[kind]
    layer = make(5).double()
    if layer.affine:
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    return layer, 3 * torch.randn(12, *shape, dtype=torch.float64) + 100, torch.randn(12, *shape, dtype=torch.float64)


def run_pass(layer, x, output_gradients):
    """Return the output, the gradients of inputs and parameters, and the running statistics after a pass."""
    x = x.clone().requires_grad_()
    output = layer(x)
    (output * output_gradients).sum().backward()
    gradients = [parameter.grad for parameter in layer.parameters()]
    return output.detach(), x.grad, gradients, {name: value.clone() for name, value in layer.named_buffers()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_process_matches_the_layer(kind):
    layer, x, output_gradients = make_layer_and_inputs(kind)
    expected = run_pass(layer.train(), x, output_gradients)
    layer, *_ = make_layer_and_inputs(kind)
    layer.forward = lambda inputs: BatchSharding().normalise(layer, inputs)
    torch.testing.assert_close(run_pass(layer, x, output_gradients), expected)


def _run_shard(group, kind, sizes):
    layer, x, output_gradients = make_layer_and_inputs(kind)
    rank = group.rank()
    start = sum(sizes[:rank])
    rows = slice(start, start + sizes[rank])
    switch = BatchNormSwitch([layer.eval()], "batch")
    empty = sizes[rank] == 0
    switch.begin_adaptation(sum(sizes), BatchSharding(make_communicator(group), empty=empty))
    # A process without samples runs on a placeholder with zero gradient.
    own_rows = (torch.full_like(x[:1], 7.0), torch.zeros_like(x[:1])) if empty else (x[rows], output_gradients[rows])
    result = run_pass(layer, *own_rows)
    switch.extra_pass(layer, own_rows[0] + 50)  # must not update the running statistics again
    assert all(torch.equal(value, result[-1][name]) for name, value in layer.named_buffers())
    switch.end_adaptation()
    assert "forward" not in layer.__dict__
    return result


@pytest.mark.parametrize("sizes", [[6, 6], [1, 11], [3, 0, 9]])
def test_sharded_batches_match_the_whole_batch(tmp_path, sizes):
    for kind in KINDS:
        layer, x, output_gradients = make_layer_and_inputs(kind)
        output, gradient, gradients, running = run_pass(layer.train(), x, output_gradients)
        found = run_in_processes(len(sizes), _run_shard, tmp_path / kind, kind, sizes)
        nonempty = [result for result, size in zip(found, sizes, strict=True) if size]
        torch.testing.assert_close(torch.cat([result[0] for result in nonempty]), output)
        torch.testing.assert_close(torch.cat([result[1] for result in nonempty]), gradient)
        for number, expected in enumerate(gradients):
            torch.testing.assert_close(sum(result[2][number] for result in found), expected)
        for *_, theirs in found:
            torch.testing.assert_close(theirs, running)
