"""Guards against divergence, at, just below and just above their limits."""

import torch

from helpers.guard_inputs import guard_context, step_stats
from regtta.guards import (
    OutputRange,
    Rollback,
    StepStats,
    SubspaceEnergy,
)


def test_subspace_energy_at_its_limit():
    """The third feature lies outside the subspace; the baseline is a hundredth of the total variance 4 + 1 + 1e-4."""
    usual = 0.01 * 5.0001
    limit = (10 * usual) ** 0.5
    state = SubspaceEnergy(factor=10, first=1).start(guard_context())
    assert (
        state.after_step(step_stats([[50.0, -7.0, 0.0]] * 2)) is None
    )  # far, but within the subspace; the baseline of the stream is 0
    assert state.after_step(step_stats([[1.0, 0.0, limit * 0.999], [9.0, 0.0, -limit * 0.999]])) is None
    ruling = state.after_step(step_stats([[1.0, 0.0, limit * 1.001], [1.0, 0.0, limit * 1.001]]))
    assert ruling == Rollback("features left the source's subspace: more than 10 times the energy outside it", "good")


def test_subspace_energy_relative_to_the_first_steps():
    state = SubspaceEnergy(factor=2, first=2).start(guard_context())
    for energy in (16.0, 36.0):  # the baseline of the stream is their mean, 26
        assert state.after_step(step_stats([[1.0, 0.0, energy**0.5]])) is None
    assert state.after_step(step_stats([[1.0, 0.0, (52 * 0.999) ** 0.5]])) is None
    assert isinstance(state.after_step(step_stats([[1.0, 0.0, (52 * 1.001) ** 0.5]])), Rollback)
    assert state.after_step(step_stats([[1.0, 0.0, torch.inf]])) == Rollback("features are not finite", "good")
    assert state.after_step(StepStats(1.0)) is None
    assert state.after_step(step_stats(torch.zeros(4, 0))) is None


def test_output_range_of_the_mean():
    """On the source the output has mean 1 and standard deviation 2: the limit is 5 · 2 = 10 from the mean."""
    state = OutputRange(distance=5, ratio=100, first=1).start(guard_context())
    assert state.after_step(step_stats([[1.0, 9.0, 9.0]] * 2)) is None
    assert state.after_step(step_stats([[10.99, 0.0, 0.0]] * 2)) is None
    reason = "outputs run away: their mean is more than 5 standard deviations off"
    assert state.after_step(step_stats([[11.01, 0.0, 0.0]] * 2)) == Rollback(reason, "good")
    assert state.after_step(step_stats([[-9.01, 0.0, 0.0]] * 2)) == Rollback(reason, "good")


def test_output_range_of_the_variance():
    """The variance on the source is 4: the limit is 40, the unbiased variance of ±√20."""
    state = OutputRange(distance=100, ratio=10, first=1).start(guard_context())
    assert state.after_step(step_stats([[1.0, 0.0, 0.0]] * 2)) is None
    for factor, refused in ((0.999, False), (1.001, True)):
        spread = (20 * factor) ** 0.5
        assert isinstance(state.after_step(step_stats([[1 + spread, 0, 0], [1 - spread, 0, 0]])), Rollback) == refused
    assert state.after_step(step_stats([[1e-3, 0.0, 0.0]])) is None  # one sample has no variance


def test_output_range_relative_to_the_first_steps():
    state = OutputRange(distance=5, ratio=10, first=1).start(guard_context())
    assert state.after_step(step_stats([[1000.0, 0, 0], [1001.0, 0, 0]])) is None
    assert state.after_step(step_stats([[1009.0, 0, 0], [1010.0, 0, 0]])) is None
    assert state.after_step(step_stats([[5.0, 0, 0], [6.0, 0, 0]])) is None  # near the source
    assert isinstance(state.after_step(step_stats([[500.0, 0, 0], [501.0, 0, 0]])), Rollback)  # near neither


def test_output_range_of_several_outputs():
    guard = OutputRange(distance=5, ratio=100, first=1)
    two = guard_context(weight=((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))
    state = guard.start(two)
    assert state.after_step(step_stats([[1.0, 0.0, 0.0]] * 2)) is None
    assert isinstance(state.after_step(step_stats([[1.0, 5.01, 0.0]] * 2)), Rollback)
    assert state.after_step(step_stats([[1.0, 4.99, 0.0]] * 2)) is None
