"""Samples that guards exclude: they are predicted, and affect nothing else."""

import logging

import pytest
import torch
from torch import nn

import regtta
from helpers import regressor, small_models
from helpers.states import assert_same
from regtta.guards import DEFAULT, SAFE, Exclusion, FiniteInputs, Guard, GuardContext, IncomingBatch, OutlierRows
from regtta.models.features import Forward

METHODS = [
    regtta.SSA(k=8, lr=1e-2),
    regtta.SSA(k=8, batch_norm="debiased"),
    regtta.SSA(k=8, window=48, batch_norm="blended"),
    regtta.BNAdapt(),
    regtta.FeatureAlignment(),
    regtta.Prototype(),
    regtta.RSD(k=4),
]


def adapter_of(method=METHODS[0], guards=DEFAULT, **options):
    model, source = regressor.model_and_statistics()
    return regtta.Adapter(model, method, source, guards=guards, **options)


def stream(batches=24, size=32, seed=1, shift=2.0, **options):
    return regressor.sample_inputs(batches * size, torch.Generator().manual_seed(seed), shift=shift, **options).split(
        size
    )


def spoiled(batch, rows, value):
    batch = batch.clone()
    batch[rows, 1] = value
    return batch


BAD_VALUES = {"nan": torch.nan, "infinity": torch.inf, "sentinel": 65535.0, "huge": -1e30}


@pytest.mark.parametrize("bad", BAD_VALUES)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name}, {getattr(method, 'batch_norm', '')}")
def test_excluded_samples_have_no_effect_on_predictions_and_state(method, bad):
    with_bad, without_bad = adapter_of(method), adapter_of(method)
    kept = [row for row in range(32) if row not in (3, 17)]
    learned = 0
    for number, batch in enumerate(stream(12)):
        if number % 3:
            with_bad.adapt(batch), without_bad.adapt(batch)
            continue
        poisoned = spoiled(batch, [3, 17], BAD_VALUES[bad])
        before = with_bad.predict(poisoned[[3, 17]])
        step, expected = with_bad.adapt(poisoned), without_bad.adapt(batch[kept])
        assert step.excluded_rows == (3, 17)
        assert expected.excluded_rows == ()
        assert torch.equal(step.predictions[kept], expected.predictions)
        assert torch.equal(step.predictions[[3, 17]].nan_to_num(), before.nan_to_num())
        assert step.diagnostics == expected.diagnostics
        learned += step.diagnostics.verdict.learned
    assert learned > 0
    state, other = with_bad.state_dict(), without_bad.state_dict()
    assert_same(state | {"begun": ""}, other | {"begun": ""})


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_excluded_samples_have_no_effect_on_the_state_of_guards(bad):
    """Up to rounding, since the source model runs on the whole batch before rows are excluded."""
    with_bad, without_bad = adapter_of(guards=SAFE), adapter_of(guards=SAFE)
    kept = [row for row in range(32) if row not in (3, 17)]
    verdicts = []
    for number, batch in enumerate(stream(60, shift=3.0)):
        given = (spoiled(batch, [3, 17], BAD_VALUES[bad]), batch[kept]) if number % 3 == 0 else (batch, batch)
        step, expected = with_bad.adapt(given[0]), without_bad.adapt(given[1])
        verdicts.append(step.diagnostics.verdict)
        assert verdicts[-1] == expected.diagnostics.verdict
    assert any(verdict.learned for verdict in verdicts)
    assert_close(with_bad.state_dict()["watches"], without_bad.state_dict()["watches"])


def assert_close(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_close(a[key], b[key])
    elif isinstance(a, str | type(None)):
        assert a == b
    else:
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-4, atol=1e-4)


def test_one_percent_of_missing_samples_rejects_no_batch():
    adapter, whole = adapter_of(), adapter_of()
    batches = stream(25, 256)
    bad = torch.rand(25, 256, generator=torch.Generator().manual_seed(3)) < 0.01
    steps = [adapter.adapt(spoiled(batch, rows, torch.nan)) for batch, rows in zip(batches, bad, strict=True)]
    assert all(step.diagnostics.verdict.learned for step in steps)
    assert [step.excluded_rows for step in steps] == [tuple(rows.nonzero().flatten().tolist()) for rows in bad]
    list(whole.run(batches))
    x = torch.cat(batches)
    clean = regressor.labels(x - 2.0)
    with_all, with_most = (regressor.r_squared(each.predict(x), clean) for each in (whole, adapter))
    assert abs(with_all - with_most) < 0.02


def test_a_batch_of_excluded_samples_is_rejected_with_the_reason():
    adapter = adapter_of()
    state = adapter.state_dict()
    step = adapter.adapt(torch.full((8, 4), torch.nan))
    assert step.diagnostics.verdict == regtta.Verdict(learned=False, reason="8 of 8 samples are not finite")
    assert step.excluded_rows == tuple(range(8))
    assert step.predictions.isnan().all()
    assert_same(state | {"index": 1}, adapter.state_dict())


def test_too_few_remaining_samples_are_rejected():
    batch = spoiled(stream(1, 8)[0], [0, 1, 2, 3, 4, 5, 7], torch.nan)
    step = adapter_of().adapt(batch)
    assert step.diagnostics.verdict.reason == "a batch of 1 has no variance"
    assert len(step.excluded_rows) == 7


@pytest.mark.parametrize("guards", [DEFAULT, SAFE], ids=["DEFAULT", "SAFE"])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_one_extreme_sample_does_not_affect_a_stream(guards, shift):
    batches = list(stream(120, shift=shift))
    offline = []
    for factor in (1.0, 1e6):
        adapter = adapter_of(guards=guards)
        poisoned = list(batches)
        poisoned[60] = batches[60].clone()
        poisoned[60][4] *= factor
        steps = list(adapter.run(poisoned))
        assert not any(step.diagnostics.verdict.returned for step in steps[50:])
        x = torch.cat(batches[-40:])
        offline.append(regressor.r_squared(adapter.predict(x), regressor.labels(x - shift)))
    assert abs(offline[0] - offline[1]) < 0.01


@pytest.mark.parametrize("change", [lambda x: x * 1000, lambda x: x + 1e4, lambda x: 1e-3 * x, lambda x: x**3])
def test_a_stream_that_is_shifted_as_a_whole_has_no_outliers(change):
    for guards in (DEFAULT, SAFE):
        adapter = adapter_of(guards=guards)
        assert not any(step.excluded_rows for step in adapter.run([change(x) for x in stream(30)]))


def test_more_than_a_quarter_of_a_batch_is_a_shift():
    batch = stream(1, 32)[0]
    for count, expected in ((8, 8), (9, 0)):
        assert len(adapter_of().adapt(spoiled(batch, list(range(count)), 1e6)).excluded_rows) == expected
    looser = (FiniteInputs(), OutlierRows(most=0.4))
    assert len(adapter_of(guards=looser).adapt(spoiled(batch, list(range(9)), 1e6)).excluded_rows) == 9


def test_the_limit_depends_on_the_range_of_the_source():
    model, _ = regressor.model_and_statistics()
    generator = torch.Generator().manual_seed(0)
    tame = regressor.sample_inputs(2000, generator)
    wild = tame.clone()
    wild[::100] *= 500  # such samples occur in the source
    batch = regressor.sample_inputs(64, generator)
    batch[5] = torch.tensor([300.0, -300.0, 300.0, 300.0])
    for data, expected in ((tame, (5,)), (wild, ())):
        source = regtta.collect(model, data.split(200))
        assert regtta.Adapter(model, METHODS[0], source).adapt(batch).excluded_rows == expected


def test_outliers_in_the_features_only():
    model, source = regressor.model_and_statistics()
    whitened = source.whitened_norms(regtta.Adapter(model, METHODS[0], source).features(stream(1, 64)[0]))
    assert source.largest_feature_norm > float(whitened.median())
    batch = stream(1, 64, shift=0.0)[0].clone()
    batch[9] = torch.tensor([60.0, -60.0, 60.0, -60.0])  # 90 standard deviations: outliers in the features only
    assert adapter_of().adapt(batch).excluded_rows == ()
    assert adapter_of(guards=SAFE).adapt(batch).excluded_rows == (9,)


def test_token_ids_and_small_batches_are_not_screened():
    ids = torch.randint(5, (16, 4))
    ids[3] = 10**9
    assert OutlierRows().exclude_rows(IncomingBatch(ids, _no_pass)) is None
    few = torch.randn(15, 2)
    few[3] = 1e9
    assert OutlierRows().exclude_rows(IncomingBatch(few, _no_pass)) is None


def test_images_with_a_sentinel_value_are_excluded():
    model = small_models.cnn()
    images = torch.rand(400, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    source = regtta.collect(model, images.split(50))
    batch = images[:32].clone()
    batch[11, 2, 5, 5] = 65535
    assert regtta.Adapter(model, regtta.SSA(k=4), source).adapt(batch).excluded_rows == (11,)


def test_labels_of_excluded_samples_are_excluded(caplog):
    model, _ = regressor.model_and_statistics()
    caplog.set_level(logging.ERROR)
    with_bad, without_bad = (regtta.Adapter(model, regtta.Oracle(), head="6") for _ in range(2))
    batch = stream(1)[0]
    poisoned, targets = spoiled(batch, [0, 31], torch.nan), regressor.labels(batch)
    with_bad.adapt(poisoned, targets)
    without_bad.adapt(batch[1:31], targets[1:31])
    assert torch.equal(with_bad.predict(batch), without_bad.predict(batch))
    with pytest.raises(regtta.RegttaError, match="Targets of shape"):
        with_bad.adapt(poisoned, targets[:5])


class ExcludeNegative(Guard):
    """Guard that excludes samples whose first value is negative."""

    def exclude_rows(self, batch):
        rows = batch.inputs[:, 0] < 0
        return Exclusion(rows, "negative") if bool(rows.any()) else None


def test_a_user_defined_guard_may_exclude_samples():
    adapter = adapter_of(guards=(FiniteInputs(), ExcludeNegative()))
    batch = stream(1, shift=0.0)[0]
    rows = tuple((batch[:, 0] < 0).nonzero().flatten().tolist())
    batch = spoiled(batch, [rows[0]], torch.nan)  # excluded by the first guard, so the second does not receive it
    assert adapter.adapt(batch).excluded_rows == rows


def test_cached_forward_passes_are_reused_after_an_exclusion():
    calls = []
    model, source = regressor.model_and_statistics()
    counted = nn.Sequential(*model)
    counted[0].register_forward_hook(lambda *_: calls.append(1))
    adapter = regtta.Adapter(counted, METHODS[0], source, guards=SAFE, allow_mismatch=True)
    batch = stream(1)[0]
    calls.clear()
    adapter.adapt(batch)
    usual = len(calls)
    calls.clear()
    adapter.adapt(spoiled(batch, [3], 1e9))
    assert len(calls) <= usual + 2  # the excluded samples, and the others
    counted[0]._forward_hooks.clear()


def _no_pass(*_):
    pytest.fail("a forward pass is not needed here")


def test_samples_whose_features_overflow_are_outliers():
    model, source = regressor.model_and_statistics()
    batch = stream(1, 32)[0]
    features = regtta.Adapter(model, METHODS[0], source).features(batch)
    features[4] = torch.inf
    features[5] = torch.nan
    screen = OutlierRows(features=True).start(GuardContext(2, source, model[6]))
    exclusion = screen.exclude_rows(IncomingBatch(batch, lambda *_: Forward(features, features)))
    assert exclusion.rows.nonzero().flatten().tolist() == [4, 5]
