import pytest
import torch

import regtta
from helpers import regressor
from regtta.errors import OptionError, StatisticsError
from regtta.guards import Gate, GuardContext, IncomingBatch, Rollback
from regtta.models.features import FeatureModel

WINDOWED = regtta.SSA(k=8, window=64, batch_norm="blended")
QUICK = regtta.SSA(k=8, lr=1e-2)


def gated(method=QUICK, **options):
    model, source = regressor.model_and_statistics()
    return regtta.Adapter(model, method, source, guards=[Gate(**options)])


def stream(batches, size=32, seed=1, **options):
    return regressor.sample_inputs(batches * size, torch.Generator().manual_seed(seed), **options).split(size)


def verdicts(adapter, batches):
    return [adapter.adapt(x).diagnostics.verdict for x in batches]


def equals_source(adapter):
    """Return True if the model equals the source model exactly."""
    source, now = regressor.model_and_statistics()[0].state_dict(), adapter.export().state_dict()
    return all(torch.equal(source[name], now[name]) for name in source)


@pytest.mark.parametrize(
    ("method", "size", "batches"), [(QUICK, 64, 10_000), (WINDOWED, 8, 1_500), (WINDOWED, 1, 2_000)]
)
def test_nothing_is_learned_without_a_shift(method, size, batches):
    """At least 99 % of batches make no update, and R² falls by no more than 0.005."""
    adapter, updates, predictions = gated(method), 0, []
    inputs = regressor.sample_inputs(size * batches, torch.Generator().manual_seed(7))
    for x in inputs.split(size):
        step = adapter.adapt(x)
        updates += step.diagnostics.verdict.learned
        predictions.append(step.predictions)
    with torch.no_grad():
        before = regressor.model_and_statistics()[0](inputs)
    targets = regressor.labels(inputs)
    assert updates <= 0.01 * batches
    assert regressor.r_squared(torch.cat(predictions), targets) >= regressor.r_squared(before, targets) - 0.005


@pytest.mark.parametrize(("shift", "scale"), [(0.5, 1.0), (1.0, 1.0), (-1.0, 1.0), (0.0, 2.0), (2.0, 1.5)])
@pytest.mark.parametrize("before", [0, 20])
def test_learning_begins_within_three_batches_of_a_shift(shift, scale, before):
    adapter = gated()
    assert not any(verdict.learned for verdict in verdicts(adapter, stream(before)) if before)
    assert any(verdict.learned for verdict in verdicts(adapter, stream(3, seed=2, shift=shift, scale=scale)))


@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0])
def test_learning_stops_when_aligned_and_the_model_is_rolled_back_after_the_shift(shift):
    adapter = gated()
    during = verdicts(adapter, stream(150, shift=shift))
    assert during[-1].reason == "aligned with the source"
    assert sum(verdict.learned for verdict in during[-50:]) <= 2  # false positives
    assert not equals_source(adapter)
    after = verdicts(adapter, stream(20, seed=3))
    back = next(i for i, verdict in enumerate(after) if verdict.returned)
    assert after[back] == regtta.Verdict(learned=False, reason="no shift", returned="source")
    assert all(verdict == regtta.Verdict(learned=False, reason="no shift") for verdict in after[back + 1 :])
    assert equals_source(adapter)
    x = stream(1, seed=9)[0]
    with torch.no_grad():
        assert torch.equal(adapter.adapt(x).predictions, regressor.model_and_statistics()[0](x))


def test_the_batch_that_ends_a_shift_is_predicted_by_the_source_model():
    adapter = gated(memory=32)
    verdicts(adapter, stream(10, shift=1.0))
    for x in stream(20, seed=3):
        step = adapter.adapt(x)
        if step.diagnostics.verdict.returned:
            break
    assert step.diagnostics.displacement == 0
    with torch.no_grad():
        assert torch.equal(step.predictions, regressor.model_and_statistics()[0](x))


def count_passes(adapter, x):
    """How many forward count_passes one step makes, and how many of them with a graph."""
    graphs = []
    handle = adapter.model[0].register_forward_hook(lambda *args: graphs.append(args[2].requires_grad))
    adapter.adapt(x)
    handle.remove()
    return len(graphs), sum(graphs)


def test_number_of_forward_passes_of_a_gated_step():
    adapter = gated(regtta.SSA(k=8, lr=1e-2, trainable="extractor"))
    assert [count_passes(adapter, x) for x in stream(10)] == [(1, 0)] * 10
    counts = []
    for x in stream(200, seed=2, shift=1.0):
        before = adapter._session.stream.learned
        counts.append((count_passes(adapter, x), adapter._session.stream.learned > before))
    refused = {count for count, learned in counts if not learned}
    assert refused == {(2, 0)}  # source model and adapted model; the latter also gives the predictions
    assert {count for count, learned in counts if learned} <= {(2, 1), (3, 1)}
    adapter.reset()
    assert count_passes(adapter, stream(1)[0]) == (1, 0)


def test_gate_at_its_limits():
    """``least`` samples suffice, one fewer do not; a stricter level or a larger tolerance rejects the batch."""
    shifted = stream(1, 40, shift=1.0)[0]
    assert verdicts(gated(least=40), [shifted])[0].learned
    assert verdicts(gated(least=41), [shifted])[0].reason == "fewer than 41 samples to tell a shift by"
    assert verdicts(gated(tolerance=5.0), [shifted])[0].reason == "no shift"
    small = stream(1, 64, shift=0.25, seed=5)[0]
    found = [verdicts(gated(level=level, tolerance=0.0), [small])[0].learned for level in (0.2, 1e-12)]
    assert found == [True, False]


def test_samples_accumulate_over_small_batches():
    found = verdicts(gated(WINDOWED), stream(12, 4, shift=2.0))
    assert [verdict.reason.startswith("fewer than 32") for verdict in found[:7]] == [True] * 7
    assert not any(verdict.reason == "no shift" for verdict in found)


@pytest.mark.parametrize(
    "options",
    [
        {"level": 0.0},
        {"level": 1.0},
        {"level": True},
        {"tolerance": -0.1},
        {"tolerance": float("nan")},
        {"memory": 0},
        {"least": 0},
        {"least": 2.5},
    ],
)
def test_invalid_options(options):
    with pytest.raises(OptionError, match=f"Expected {next(iter(options))} to be a"):
        Gate(**options)


def test_missing_source_statistics():
    model, _ = regressor.model_and_statistics()
    with pytest.raises(StatisticsError, match="guards Gate need source statistics"):
        regtta.Adapter(model, regtta.BNAdapt(), guards=[Gate()])
    with pytest.raises(StatisticsError, match="The guard Gate compares features"):
        Gate().start(GuardContext())


def test_a_rejection_rolls_back_only_an_adapted_model():
    model, source = regressor.model_and_statistics()
    state = Gate(least=8).start(GuardContext(2, source, model[6]))
    forward, x = FeatureModel(model, "6"), stream(1)[0]
    with torch.no_grad():
        still = IncomingBatch(x, lambda *_: forward(x), lambda *_: pytest.fail("not while nothing has moved"))
        assert state.before_step(still) == "no shift"
        moved = IncomingBatch(
            x, lambda *_: pytest.fail("not where there is no shift"), lambda *_: forward(x), moved=True
        )
        assert state.before_step(moved) == Rollback("no shift", "source")


def test_states_of_earlier_versions_have_no_autocorrelation():
    model, source = regressor.model_and_statistics()
    state = Gate().start(GuardContext(2, source, model[6]))
    forward, x = FeatureModel(model, "6"), stream(1)[0]
    with torch.no_grad():
        state.before_step(IncomingBatch(x, lambda *_: forward(x)))
    earlier = {key: value for key, value in state.state_dict().items() if key != "autocorrelation"}
    state.validate_state(earlier, "state")
    state.load_state_dict(earlier)
    assert state.autocorrelation.count == 0
    assert state.at_source.count == 32
