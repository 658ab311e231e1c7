"""Every guard at, just below and just above what it lets pass; what each costs; what each refuses to be made of."""

import itertools

import pytest
import torch
from torch import nn

import regtta
from helpers import regressor
from regtta.errors import OptionError, StatisticsError
from regtta.guards import (
    DEFAULT,
    SAFE,
    BeyondReweighting,
    BoundedDisplacement,
    BoundedLoss,
    FiniteInputs,
    FiniteStep,
    Gate,
    Guard,
    GuardChain,
    GuardContext,
    HealthCheck,
    IncomingBatch,
    Keep,
    OutputRange,
    Rollback,
    SeveralSamples,
    SteadyStream,
    StepStats,
    SubspaceEnergy,
    VariedInputs,
)
from regtta.models.features import Forward
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics


def post(deviations=(2.0, 1.0, 0.01), weight=((1.0, 0.0, 0.0),), mean=(1.0, 0.0, 0.0)):
    """A source of three uncorrelated features with the given deviations; the output is the first."""
    points = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    points = points * torch.tensor(deviations) * (7 / 8) ** 0.5 + torch.tensor(mean)
    source = SourceStatistics.from_moments(Moments.from_features(points), head="", fingerprint="")
    head = nn.Linear(3, len(weight)).double()
    with torch.no_grad():
        head.weight.copy_(torch.tensor(weight))
    return GuardContext(2, source, head)


def outcome(features, **numbers):
    features = torch.as_tensor(features, dtype=torch.float64)
    return StepStats(forward=Forward(features, features), **numbers)


def arrival(features, now=None, moved=False):
    at_source = Forward(features, features)
    return IncomingBatch(
        features, lambda *_: at_source if now is None else Forward(now, now), lambda *_: at_source, moved=moved
    )  # fmt: skip


# --- steps -----------------------------------------------------------------------------------------


def test_bounded_displacement():
    guard = BoundedDisplacement(0.25)
    assert guard.after_step(StepStats(displacement=0.25)) is None
    assert (
        guard.after_step(StepStats(displacement=0.2500001))
        == "the parameters would be further than 0.25 from where they began"
    )
    assert guard.after_step(StepStats(displacement=float("inf"))) == guard.after_step(StepStats(displacement=1e300))
    assert (
        FiniteStep().after_step(StepStats(displacement=float("inf"))) is None
    )  # a norm may overflow where no weight does
    assert FiniteStep().after_step(StepStats(finite=False)) == "outputs, weights or running statistics are not finite"


def test_bounded_loss_compares_with_the_median_of_the_losses_before():
    watch = BoundedLoss(factor=3, memory=4).start(GuardContext())
    for loss in (100.0, 2.0, 4.0):  # the first has nothing to be compared with
        assert watch.after_step(StepStats(loss)) is None
    assert watch.after_step(StepStats(12.0)) is None  # three times the median of 100, 2, 4
    assert watch.after_step(StepStats(24.1)) == "the loss exploded: more than 3 times the median of late"  # median 8
    assert watch.after_step(StepStats(24.0)) is None  # 2, 4, 12, 24.1: the refused one counts, the first is forgotten
    assert watch.after_step(StepStats(float("nan"))) is None
    assert watch.after_step(StepStats(None)) is None
    assert list(watch.losses) == [4.0, 12.0, 24.1, 24.0]


def test_bounded_loss_accepts_a_new_level_in_time():
    watch = BoundedLoss(factor=1.5, memory=6).start(GuardContext())
    rulings = [watch.after_step(StepStats(loss)) is None for loss in [1.0] * 6 + [100.0] * 6]
    assert rulings == [True] * 6 + [False] * 4 + [True] * 2  # at three of six the median is between the levels


# --- runaway ---------------------------------------------------------------------------------------


def test_subspace_energy_at_its_limit():
    """The third feature lies outside; the usual energy there is a hundredth of the total variance 4 + 1 + 1e-4."""
    usual = 0.01 * 5.0001
    limit = (10 * usual) ** 0.5
    watch = SubspaceEnergy(factor=10, first=1).start(post())
    assert watch.after_step(outcome([[50.0, -7.0, 0.0]] * 2)) is None  # however far within; began at 0
    assert watch.after_step(outcome([[1.0, 0.0, limit * 0.999], [9.0, 0.0, -limit * 0.999]])) is None
    ruling = watch.after_step(outcome([[1.0, 0.0, limit * 1.001], [1.0, 0.0, limit * 1.001]]))
    assert ruling == Rollback("features left the source's subspace: more than 10 times the energy outside it", "good")


def test_subspace_energy_of_a_stream_that_began_outside():
    watch = SubspaceEnergy(factor=2, first=2).start(post())
    for energy in (16.0, 36.0):  # the first two say how it began: 26
        assert watch.after_step(outcome([[1.0, 0.0, energy**0.5]])) is None
    assert watch.after_step(outcome([[1.0, 0.0, (52 * 0.999) ** 0.5]])) is None
    assert isinstance(watch.after_step(outcome([[1.0, 0.0, (52 * 1.001) ** 0.5]])), Rollback)
    assert watch.after_step(outcome([[1.0, 0.0, torch.inf]])) == Rollback("features are not finite", "good")
    assert watch.after_step(StepStats(1.0)) is None
    assert watch.after_step(outcome(torch.zeros(4, 0))) is None


def test_output_range_of_the_mean():
    """On the source the output has mean 1 and deviation 2: 5 deviations are 10."""
    watch = OutputRange(distance=5, ratio=100, first=1).start(post())
    assert watch.after_step(outcome([[1.0, 9.0, 9.0]] * 2)) is None
    assert watch.after_step(outcome([[10.99, 0.0, 0.0]] * 2)) is None
    reason = "outputs run away: their mean is more than 5 standard deviations off"
    assert watch.after_step(outcome([[11.01, 0.0, 0.0]] * 2)) == Rollback(reason, "good")
    assert watch.after_step(outcome([[-9.01, 0.0, 0.0]] * 2)) == Rollback(reason, "good")


def test_output_range_of_the_variance():
    """On the source 4: ten times that is 40, which ±√20 has as an unbiased variance."""
    watch = OutputRange(distance=100, ratio=10, first=1).start(post())
    assert watch.after_step(outcome([[1.0, 0.0, 0.0]] * 2)) is None
    for factor, refused in ((0.999, False), (1.001, True)):
        spread = (20 * factor) ** 0.5
        assert isinstance(watch.after_step(outcome([[1 + spread, 0, 0], [1 - spread, 0, 0]])), Rollback) == refused
    assert watch.after_step(outcome([[1e-3, 0.0, 0.0]])) is None  # one sample has no variance to compare


def test_a_stream_that_begins_elsewhere_is_its_own_measure():
    watch = OutputRange(distance=5, ratio=10, first=1).start(post())
    assert watch.after_step(outcome([[1000.0, 0, 0], [1001.0, 0, 0]])) is None
    assert watch.after_step(outcome([[1009.0, 0, 0], [1010.0, 0, 0]])) is None
    assert watch.after_step(outcome([[5.0, 0, 0], [6.0, 0, 0]])) is None  # near the source
    assert isinstance(watch.after_step(outcome([[500.0, 0, 0], [501.0, 0, 0]])), Rollback)  # near neither


def test_any_output_of_several_may_run_away():
    guard = OutputRange(distance=5, ratio=100, first=1)
    two = post(weight=((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))
    watch = guard.start(two)
    assert watch.after_step(outcome([[1.0, 0.0, 0.0]] * 2)) is None
    assert isinstance(watch.after_step(outcome([[1.0, 5.01, 0.0]] * 2)), Rollback)
    assert watch.after_step(outcome([[1.0, 4.99, 0.0]] * 2)) is None


# --- streams ---------------------------------------------------------------------------------------


def test_beyond_reweighting_at_its_limit():
    """Whitened means of size √c need a reweighting of divergence c; samples without spread leave chance out."""
    reason = "another mix of the source's own samples explains the shift"
    for shift, expected in ((2.999, reason), (3.001, None)):
        watch = BeyondReweighting(limit=9).start(post())
        assert (
            watch.before_step(arrival(torch.tensor([[1.0 + 2 * shift, 0.0, 0.0]] * 8, dtype=torch.float64))) == expected
        )
    watch = BeyondReweighting(limit=0).start(post())
    assert watch.before_step(arrival(torch.full((3, 3), torch.nan).double())) == reason  # nothing seen is nothing moved


def steady(guard, batches):
    watch = guard.start(post())
    return [watch.before_step(arrival(torch.nn.functional.pad(x.double(), (0, 2)))) for x in batches]


def test_steady_stream_waits_for_its_memory_and_looks_for_order():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(512, 1, generator=generator)
    found = steady(SteadyStream(), values.split(32))
    assert found == ["steady for fewer than 512 samples"] * 15 + [None]
    moving = steady(SteadyStream(), values.sort(dim=0).values.split(32))
    assert set(moving[4:]) == {"the stream is not steady: outputs move from block to block"}


def test_steady_stream_forgets_what_is_older_than_its_memory_or_four_batches():
    generator = torch.Generator().manual_seed(0)
    jump = torch.cat([torch.randn(256, 1, generator=generator), torch.randn(512, 1, generator=generator) + 5])
    found = steady(SteadyStream(memory=128, patience=128), jump.split(32))
    assert found[7] is None
    assert all("not steady" in reason for reason in found[8:11])
    assert found[11:14] == ["steady for fewer than 128 samples"] * 3
    assert found[14:] == [None] * 10
    large = steady(SteadyStream(memory=128, patience=128), torch.randn(1200, 1, generator=generator).split(200))
    assert large == [None] * 6


@pytest.mark.parametrize(("memory", "block"), [(16, 32), (32, 32), (64, 1)])
@pytest.mark.filterwarnings("ignore:var:UserWarning")
def test_steady_stream_refuses_options_that_leave_nothing_to_compare(memory, block):
    with pytest.raises(OptionError):
        steady(SteadyStream(memory=memory, block=block), torch.arange(256.0)[:, None].split(16))


# --- health ----------------------------------------------------------------------------------------


def health(every=1):
    return HealthCheck(every=every, memory=1).start(post())


def whitened_rows(offset):
    """Features whose whitened mean along the first direction is ``offset`` and whose spreads are the source's."""
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    return signs * torch.tensor([2.0, 1.0, 0.01]) + torch.tensor([1.0 + 2 * offset, 0, 0])


def test_health_check_keeps_what_is_no_further_than_the_source_model():
    for now, expected in ((0.99, Keep()), (1.0, Keep()), (1.01, Rollback)):
        watch = health()
        assert watch.after_step(StepStats()) is None  # nothing to compare before anything has moved
        watch.before_step(arrival(whitened_rows(1.0), whitened_rows(now), moved=True))
        ruling = watch.after_step(StepStats())
        assert ruling == expected if isinstance(expected, Keep) else ruling.to == "good"


def test_health_check_speaks_every_so_many_steps_and_counts_failures_in_a_row():
    watch = health(every=2)
    rulings = []
    for now in (2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0):
        watch.before_step(arrival(whitened_rows(1.0), whitened_rows(now), moved=True))
        ruling = watch.after_step(StepStats())
        rulings.append(ruling.to if isinstance(ruling, Rollback) else ruling)
    assert rulings == [None, "good", None, "source", None, Keep(), None, "good", None, "source", None, "source"]


# --- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("smallest", "size", "reason"), [(2, 1, "a batch of 1 has no variance"), (2, 2, None), (1, 1, None)]
)
def test_several_samples_takes_what_the_method_can_learn_from(smallest, size, reason):
    assert SeveralSamples().start(GuardContext(smallest)).before_step(arrival(torch.zeros(size, 3))) == reason


def test_several_samples_of_a_number_asked_for():
    watch = SeveralSamples(16).start(GuardContext(2))
    assert watch.before_step(arrival(torch.zeros(16, 3))) is None
    assert watch.before_step(arrival(torch.zeros(15, 3))) == "a batch of 15 is fewer than 16"
    assert (
        SeveralSamples(16).start(GuardContext(1)).before_step(arrival(torch.zeros(1, 3))) is None
    )  # a window is its own memory


# --- together --------------------------------------------------------------------------------------


class Says(Guard):
    def __init__(self, before=None, after=None, unusable=False):
        for name, value in {"before": before, "after": after, "unusable": unusable, "asked": []}.items():
            object.__setattr__(self, name, value)

    def before_step(self, arrival):
        self.asked.append("admits")
        return self.before

    def after_step(self, outcome):
        self.asked.append("after_step")
        return self.after


def test_every_watch_sees_every_usable_batch_and_an_order_to_go_back_outweighs_a_no():
    back = Rollback("back", "source")
    watches = Says("no"), Says(back), Says("no more")
    assert GuardChain(watches, GuardContext()).before_step(arrival(torch.zeros(2, 3))) == back
    assert [watch.asked for watch in watches] == [["admits"]] * 3
    watches = Says("first"), Says("spoiled", unusable=True), Says(back)
    assert GuardChain(watches, GuardContext()).before_step(arrival(torch.zeros(2, 3))) == "first"
    assert watches[2].asked == []
    assert GuardChain([Says(), Says()], GuardContext()).before_step(arrival(torch.zeros(2, 3))) is None


def test_the_first_refusal_of_a_step_stands_and_a_keep_waits_for_all():
    assert (
        GuardChain([Says(after=Keep()), Says(after="no"), Says(after="later")], GuardContext()).after_step(StepStats())
        == "no"
    )
    assert GuardChain([Says(after=Keep()), Says()], GuardContext()).after_step(StepStats()) == Keep()
    last = Says(after="no")
    GuardChain([Says(after="no"), last], GuardContext()).after_step(StepStats())
    assert last.asked == []


@pytest.mark.parametrize(
    ("guard", "options"),
    [
        (SeveralSamples, {"least": 0}),
        (SeveralSamples, {"least": 1.5}),
        (BoundedLoss, {"factor": 0}),
        (BoundedLoss, {"memory": 0}),
        (BoundedDisplacement, {"limit": 0}),
        (BoundedDisplacement, {"limit": float("nan")}),
        (SubspaceEnergy, {"factor": -1}),
        (SubspaceEnergy, {"first": 0}),
        (OutputRange, {"distance": 0}),
        (OutputRange, {"ratio": "10"}),
        (OutputRange, {"first": True}),
        (BeyondReweighting, {"limit": -1}),
        (BeyondReweighting, {"memory": 0}),
        (SteadyStream, {"memory": 0}),
        (SteadyStream, {"block": 0}),
        (SteadyStream, {"level": 1}),
        (HealthCheck, {"every": 0}),
        (HealthCheck, {"memory": -5}),
    ],
)
def test_options_that_cannot_be_meant(guard, options):
    with pytest.raises(OptionError, match=f"Expected {next(iter(options))} to be a"):
        guard(**options)


@pytest.mark.parametrize("guard", [guard for guard in SAFE if guard.needs_source], ids=lambda g: type(g).__name__)
def test_what_compares_with_the_source_says_so_without_one(guard):
    with pytest.raises(StatisticsError, match=type(guard).__name__):
        guard.start(GuardContext())
    with pytest.raises(StatisticsError, match=type(guard).__name__):
        regtta.Adapter(regressor.model_and_statistics()[0], regtta.BNAdapt(), guards=[guard])


# --- what each costs -------------------------------------------------------------------------------

FREE = [FiniteInputs(), SeveralSamples(), VariedInputs(), FiniteStep(), BoundedLoss(), BoundedDisplacement(),
        SubspaceEnergy(), OutputRange()]  # fmt: skip
COSTS = [(guard, 0, 0) for guard in FREE] + [
    (Gate(), 1, 2),
    (BeyondReweighting(), 1, 1),
    (SteadyStream(), 1, 1),
    (HealthCheck(), 0, 2),
]


@pytest.mark.parametrize(("guard", "at_first", "moved"), COSTS, ids=lambda value: type(value).__name__)
def test_how_many_forward_passes_a_guard_adds(guard, at_first, moved):
    """To the one that is learned from: while nothing has moved, and after."""
    model, source = regressor.model_and_statistics()
    calls = []
    for has_moved, expected in ((False, at_first), (True, moved)):
        x = regressor.sample_inputs(64, torch.Generator().manual_seed(3), shift=4.0)
        calls.clear()

        def run(x, counts):
            calls.append(1)
            with torch.no_grad():
                return Forward(model[:6](x), model(x))

        guard.start(GuardContext(2, source, model[6])).before_step(IncomingBatch(x, run, run, moved=has_moved))
        assert len(calls) == expected


def test_all_guards_together_share_their_passes():
    model, source = regressor.model_and_statistics()
    adapter = regtta.Adapter(model, regtta.SSA(k=8), source, guards=SAFE)
    counts = []
    handle = adapter._model[0].register_forward_hook(lambda *_: counts.append(1))
    for x in regressor.sample_inputs(64 * 12, torch.Generator().manual_seed(3), shift=3.0).split(64):
        counts.append(0)
        adapter.adapt(x)
    handle.remove()
    steps = "".join(map(str, counts)).split("0")[1:]
    assert steps[0] == "1"  # not learned from yet: the one pass predicts as well
    assert max(map(len, steps)) == 3  # source, current, and the one that is learned from
    plain = regtta.Adapter(model, regtta.SSA(k=8), source, guards=DEFAULT)
    counts.clear()
    plain._model[0].register_forward_hook(lambda *_: counts.append(1))
    plain.adapt(x)
    assert len(counts) == 1
