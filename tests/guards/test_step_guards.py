"""Guards against bad steps, at, just below and just above their limits."""

from regtta.guards import (
    BoundedDisplacement,
    BoundedLoss,
    FiniteStep,
    GuardContext,
    StepStats,
)


def test_finite_step():
    assert FiniteStep().after_step(StepStats(1.0, 2.0)) is None
    assert FiniteStep().after_step(StepStats(None, None)) is None
    assert FiniteStep().after_step(StepStats(float("inf"), 1.0)) == "the loss is not finite"
    assert FiniteStep().after_step(StepStats(1.0, float("nan"))) == "the gradient is not finite"


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
    )  # a norm may overflow although all weights are finite
    assert FiniteStep().after_step(StepStats(finite=False)) == "outputs, weights or running statistics are not finite"


def test_bounded_loss_compares_with_the_median_of_previous_losses():
    state = BoundedLoss(factor=3, memory=4).start(GuardContext())
    for loss in (100.0, 2.0, 4.0):  # no previous losses to compare the first with
        assert state.after_step(StepStats(loss)) is None
    assert state.after_step(StepStats(12.0)) is None  # three times the median of 100, 2, 4
    assert state.after_step(StepStats(24.1)) == "the loss exploded: more than 3 times the median of late"  # median 8
    assert (
        state.after_step(StepStats(24.0)) is None
    )  # median of 2, 4, 12, 24.1: rejected losses are stored, the first is dropped
    assert state.after_step(StepStats(float("nan"))) is None
    assert state.after_step(StepStats(None)) is None
    assert list(state.losses) == [4.0, 12.0, 24.1, 24.0]


def test_bounded_loss_accepts_a_new_level_in_time():
    state = BoundedLoss(factor=1.5, memory=6).start(GuardContext())
    rulings = [state.after_step(StepStats(loss)) is None for loss in [1.0] * 6 + [100.0] * 6]
    assert rulings == [True] * 6 + [False] * 4 + [True] * 2  # at three of six the median is between the levels
