"""Guards against label shift and non-stationary streams, at their limits."""

import pytest
import torch
from torch import nn

from helpers.guard_inputs import guard_context, incoming_batch
from regtta.errors import OptionError
from regtta.guards import Gate, GuardContext, LabelShiftGuard, Rollback, StationarityGuard
from regtta.guards.stream_guards import sudden_change
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics


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


def wide_rulings(values, size=32, *, moved=False, **options):
    """Return the rulings on samples (N, K) of a source with K uncorrelated features of mean 0 and variance 1.

    The output is the first of them.
    """
    width = values.shape[1]
    rows = torch.randn(5000, width, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    rows = (rows - rows.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky(rows.T.cov())).T
    source = SourceStatistics.from_moments(Moments.from_features(rows), head="", fingerprint="")
    head = nn.Linear(width, 1).double()
    with torch.no_grad():
        head.weight.copy_(torch.eye(width)[:1])
    state = StationarityGuard(**options).start(GuardContext(2, source, head))
    return [state.before_step(incoming_batch(batch.double(), moved=moved)) for batch in values.split(size)]


def samples(count, width=16, seed=0):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("squared_shift", "batches"), [(0.0, 15), (35.0, 15), (72.0, 7), (1e4, 3), (1e8, 3)]
)  # 512, 512, 256 and 128 samples in batches of 32
def test_the_wait_shortens_with_the_size_of_the_shift(squared_shift, batches):
    found = wide_rulings(samples(640) + (squared_shift / 16) ** 0.5)
    waiting = [ruling is not None for ruling in found]
    assert abs(sum(waiting) - batches) <= 1
    assert waiting == sorted(waiting, reverse=True)


def test_a_huge_shift_is_learned_from_in_the_second_batch():
    assert [ruling is None for ruling in wide_rulings(samples(256) + 10, size=64)] == [False, True, True, True]


def test_patience_is_the_longest_wait_and_doubts_forbid_a_shorter_one():
    assert wide_rulings(samples(128) + 10, patience=40)[1] is None
    trend = samples(320) + 10
    assert wide_rulings(trend)[-1] is None
    trend[:, 1:] += torch.linspace(-0.35, 0.35, 320)[:, None]
    assert wide_rulings(trend)[-1] == "steady for fewer than 512 samples"  # not unsteady at the level of a rollback


def test_a_sudden_change_starts_a_new_stream_at_its_sample():
    values = torch.cat([samples(600), samples(424, seed=1) + 4])
    found = wide_rulings(values, size=64)
    assert all("fewer than 512" in ruling for ruling in found[:7])
    assert found[8] is None
    assert found[9].startswith("steady for fewer than 128")  # 40 of 64 samples are new
    assert found[10].startswith("steady for fewer than 128")
    assert found[11] is found[12] is found[-1] is None
    assert wide_rulings(values, size=64, moved=True)[9] == Rollback("the stream changed suddenly", "source")


@pytest.mark.parametrize(("squared", "expected"), [(30.0, None), (44.0, 64)])
def test_sudden_change_at_its_limit(squared, expected):
    values = torch.cat([samples(64), samples(32, seed=1) + (squared / 16) ** 0.5])
    assert sudden_change(values, 32) == expected


def test_no_sudden_change_in_independent_samples_nor_in_a_mixture_of_two_domains():
    for seed in range(20):
        values = samples(256, seed=seed)
        assert sudden_change(values, 16) is None
        chosen = torch.rand(256, generator=torch.Generator().manual_seed(seed)) < 0.5
        assert sudden_change(values + 5.0 * chosen[:, None], 16) is None


@pytest.mark.parametrize("size", [8, 24, 64])
def test_a_sudden_change_within_a_batch_is_found(size):
    values = torch.cat([samples(200), samples(280, seed=1) + 8])
    found = wide_rulings(values, size=size)
    assert None in found  # the samples before the change are forgotten: there are fewer than 512


def test_resumed_guards_have_the_same_verdicts():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1600, 1, generator=generator)
    values[1:] = values[1:] + values[:-1]
    values[800:] += 30
    batches = [torch.nn.functional.pad(x.double(), (0, 2)) for x in values.split(32)]
    for guard in (Gate(), LabelShiftGuard(), StationarityGuard()):
        state = guard.start(guard_context())
        rulings = [state.before_step(incoming_batch(batch)) for batch in batches[:30]]
        resumed = guard.start(guard_context())
        resumed.validate_state(state.state_dict(), "state")
        resumed.load_state_dict(state.state_dict())
        for batch in batches[30:]:
            rulings.append(state.before_step(incoming_batch(batch)))
            assert rulings[-1] == resumed.before_step(incoming_batch(batch))
        assert len(set(rulings)) > 1
