"""Guards against label shift and non-stationary streams, at their limits."""

import pytest
import torch

from helpers.guard_inputs import guard_context, incoming_batch
from regtta.errors import OptionError
from regtta.guards import (
    LabelShiftGuard,
    StationarityGuard,
)


def test_label_shift_guard_at_its_limit():
    """Whitened means of size √c require a reweighting of divergence c; equal samples have no sampling error."""
    reason = "another mix of the source's own samples explains the shift"
    for shift, expected in ((2.999, reason), (3.001, None)):
        state = LabelShiftGuard(limit=9).start(guard_context())
        assert (
            state.before_step(incoming_batch(torch.tensor([[1.0 + 2 * shift, 0.0, 0.0]] * 8, dtype=torch.float64)))
            == expected
        )
    state = LabelShiftGuard(limit=0).start(guard_context())
    assert (
        state.before_step(incoming_batch(torch.full((3, 3), torch.nan).double())) == reason
    )  # without finite samples, no shift


def rulings_of(guard, batches):
    state = guard.start(guard_context())
    return [state.before_step(incoming_batch(torch.nn.functional.pad(x.double(), (0, 2)))) for x in batches]


def test_stationarity_guard_waits_for_its_patience_and_rejects_sorted_streams():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(512, 1, generator=generator)
    found = rulings_of(StationarityGuard(), values.split(32))
    assert found == ["steady for fewer than 512 samples"] * 15 + [None]
    moving = rulings_of(StationarityGuard(), values.sort(dim=0).values.split(32))
    assert set(moving[4:]) == {"the stream is not steady: outputs move from block to block"}


def test_stationarity_guard_forgets_samples_older_than_its_memory_or_four_batches():
    generator = torch.Generator().manual_seed(0)
    jump = torch.cat([torch.randn(256, 1, generator=generator), torch.randn(512, 1, generator=generator) + 5])
    found = rulings_of(StationarityGuard(memory=128, patience=128), jump.split(32))
    assert found[7] is None
    assert all("not steady" in reason for reason in found[8:11])
    assert found[11:14] == ["steady for fewer than 128 samples"] * 3
    assert found[14:] == [None] * 10
    large = rulings_of(
        StationarityGuard(memory=128, patience=128), torch.randn(1200, 1, generator=generator).split(200)
    )
    assert large == [None] * 6


@pytest.mark.parametrize(("memory", "block"), [(16, 32), (32, 32), (64, 1)])
@pytest.mark.filterwarnings("ignore:var:UserWarning")
def test_stationarity_guard_rejects_options_without_two_blocks(memory, block):
    with pytest.raises(OptionError):
        rulings_of(StationarityGuard(memory=memory, block=block), torch.arange(256.0)[:, None].split(16))
