"""Samples that guards leave out: predicted as they are, and as if they had not come for everything else."""

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
def test_everything_is_as_if_the_bad_samples_had_not_come(method, bad):
    struck, spared = adapter_of(method), adapter_of(method)
    kept = [row for row in range(32) if row not in (3, 17)]
    learned = 0
    for number, batch in enumerate(stream(12)):
        if number % 3:
            struck.adapt(batch), spared.adapt(batch)
            continue
        poisoned = spoiled(batch, [3, 17], BAD_VALUES[bad])
        before = struck.predict(poisoned[[3, 17]])
        step, expected = struck.adapt(poisoned), spared.adapt(batch[kept])
        assert step.excluded_rows == (3, 17)
        assert expected.excluded_rows == ()
        assert torch.equal(step.predictions[kept], expected.predictions)
        assert torch.equal(step.predictions[[3, 17]].nan_to_num(), before.nan_to_num())
        assert step.diagnostics == expected.diagnostics
        learned += step.diagnostics.verdict.learned
    assert learned > 0
    state, other = struck.state_dict(), spared.state_dict()
    assert_same(state | {"begun": ""}, other | {"begun": ""})


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_nothing_of_bad_samples_stays_in_the_memory_of_guards(bad):
    """To rounding: the source model's pass is made of the whole batch, and the rows of the bad samples left out."""
    struck, spared = adapter_of(guards=SAFE), adapter_of(guards=SAFE)
    kept = [row for row in range(32) if row not in (3, 17)]
    verdicts = []
    for number, batch in enumerate(stream(60, shift=3.0)):
        given = (spoiled(batch, [3, 17], BAD_VALUES[bad]), batch[kept]) if number % 3 == 0 else (batch, batch)
        step, expected = struck.adapt(given[0]), spared.adapt(given[1])
        verdicts.append(step.diagnostics.verdict)
        assert verdicts[-1] == expected.diagnostics.verdict
    assert any(verdict.learned for verdict in verdicts)
    assert_close(struck.state_dict()["watches"], spared.state_dict()["watches"])


def assert_close(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_close(a[key], b[key])
    elif isinstance(a, str | type(None)):
        assert a == b
    else:
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-4, atol=1e-4)


def test_one_percent_of_missing_samples_costs_no_batch():
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


def test_a_batch_without_a_good_sample_is_refused_with_the_reason():
    adapter = adapter_of()
    state = adapter.state_dict()
    step = adapter.adapt(torch.full((8, 4), torch.nan))
    assert step.diagnostics.verdict == regtta.Verdict(learned=False, reason="8 of 8 samples are not finite")
    assert step.excluded_rows == tuple(range(8))
    assert step.predictions.isnan().all()
    assert_same(state | {"index": 1}, adapter.state_dict())


def test_too_few_good_samples_are_refused_for_that():
    batch = spoiled(stream(1, 8)[0], [0, 1, 2, 3, 4, 5, 7], torch.nan)
    step = adapter_of().adapt(batch)
    assert step.diagnostics.verdict.reason == "a batch of 1 has no variance"
    assert len(step.excluded_rows) == 7


@pytest.mark.parametrize("guards", [DEFAULT, SAFE], ids=["DEFAULT", "SAFE"])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_one_absurd_sample_does_not_ruin_a_stream(guards, shift):
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


def test_more_than_a_quarter_of_a_batch_is_a_shift_and_no_outliers():
    batch = stream(1, 32)[0]
    for count, expected in ((8, 8), (9, 0)):
        assert len(adapter_of().adapt(spoiled(batch, list(range(count)), 1e6)).excluded_rows) == expected
    looser = (FiniteInputs(), OutlierRows(most=0.4))
    assert len(adapter_of(guards=looser).adapt(spoiled(batch, list(range(9)), 1e6)).excluded_rows) == 9


def test_the_limit_comes_from_the_sources_own_samples():
    model, _ = regressor.model_and_statistics()
    generator = torch.Generator().manual_seed(0)
    tame = regressor.sample_inputs(2000, generator)
    wild = tame.clone()
    wild[::100] *= 500  # the source itself has such samples
    batch = regressor.sample_inputs(64, generator)
    batch[5] = torch.tensor([300.0, -300.0, 300.0, 300.0])
    for data, expected in ((tame, (5,)), (wild, ())):
        source = regtta.collect(model, data.split(200))
        assert regtta.Adapter(model, METHODS[0], source).adapt(batch).excluded_rows == expected


def test_features_tell_outliers_that_inputs_do_not():
    model, source = regressor.model_and_statistics()
    whitened = source.whitened_norms(regtta.Adapter(model, METHODS[0], source).features(stream(1, 64)[0]))
    assert source.largest_feature_norm > float(whitened.median())
    batch = stream(1, 64, shift=0.0)[0].clone()
    batch[9] = torch.tensor([60.0, -60.0, 60.0, -60.0])  # 90 deviations: too far for features alone
    assert adapter_of().adapt(batch).excluded_rows == ()
    assert adapter_of(guards=SAFE).adapt(batch).excluded_rows == (9,)


def test_token_ids_and_small_batches_are_not_looked_at():
    ids = torch.randint(5, (16, 4))
    ids[3] = 10**9
    assert OutlierRows().exclude_rows(IncomingBatch(ids, _no_pass)) is None
    few = torch.randn(15, 2)
    few[3] = 1e9
    assert OutlierRows().exclude_rows(IncomingBatch(few, _no_pass)) is None


def test_images_with_a_sentinel_are_left_out():
    model = small_models.cnn()
    images = torch.rand(400, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    source = regtta.collect(model, images.split(50))
    batch = images[:32].clone()
    batch[11, 2, 5, 5] = 65535
    assert regtta.Adapter(model, regtta.SSA(k=4), source).adapt(batch).excluded_rows == (11,)


def test_labels_of_samples_left_out_are_left_out_too(caplog):
    model, _ = regressor.model_and_statistics()
    caplog.set_level(logging.ERROR)
    struck, spared = (regtta.Adapter(model, regtta.Oracle(), head="6") for _ in range(2))
    batch = stream(1)[0]
    poisoned, targets = spoiled(batch, [0, 31], torch.nan), regressor.labels(batch)
    struck.adapt(poisoned, targets)
    spared.adapt(batch[1:31], targets[1:31])
    assert torch.equal(struck.predict(batch), spared.predict(batch))
    with pytest.raises(regtta.RegttaError, match="Targets of shape"):
        struck.adapt(poisoned, targets[:5])


class LeavesOut(Guard):
    """Leaves out samples whose first number is negative."""

    def exclude_rows(self, arrival):
        rows = arrival.inputs[:, 0] < 0
        return Exclusion(rows, "negative") if bool(rows.any()) else None


def test_a_guard_of_the_users_own_may_leave_samples_out():
    adapter = adapter_of(guards=(FiniteInputs(), LeavesOut()))
    batch = stream(1, shift=0.0)[0]
    rows = tuple((batch[:, 0] < 0).nonzero().flatten().tolist())
    batch = spoiled(batch, [rows[0]], torch.nan)  # left out by the first, so the second does not see it
    assert adapter.adapt(batch).excluded_rows == rows


def test_passes_that_were_made_are_made_once_for_all_guards():
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
    assert len(calls) <= usual + 2  # the samples left out, and the others
    counted[0]._forward_hooks.clear()


def _no_pass(*_):
    pytest.fail("nobody needs a forward pass for this")


def test_samples_whose_features_overflow_are_outliers():
    model, source = regressor.model_and_statistics()
    batch = stream(1, 32)[0]
    features = regtta.Adapter(model, METHODS[0], source).features(batch)
    features[4] = torch.inf
    features[5] = torch.nan
    screen = OutlierRows(features=True).start(GuardContext(2, source, model[6]))
    exclusion = screen.exclude_rows(IncomingBatch(batch, lambda *_: Forward(features, features)))
    assert exclusion.rows.nonzero().flatten().tolist() == [4, 5]
