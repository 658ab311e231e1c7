import json

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score

import regtta
from helpers import small_models
from regtta.errors import BatchError, OptionError
from regtta.report.analysis import record_stream


@pytest.fixture
def batches():
    parts = list(small_models.table(130, shift=1.0, scale=1.5, seed=2).split(40))
    parts[1] = parts[1].clone()
    parts[1][:, 0] = torch.nan
    return parts


@pytest.fixture
def labels():
    return small_models.table(130, inputs=2, seed=7).split(40)


def test_steps_are_those_of_the_adapter(case, batches):
    record = record_stream(regtta.Adapter(case.model, regtta.SSA(k=6), case.source), batches)
    steps = list(regtta.Adapter(case.model, regtta.SSA(k=6), case.source).run(batches))
    diagnostics = [step.diagnostics for step in steps]
    assert record.loss.tolist()[2:] == [one.loss for one in diagnostics[2:]]
    assert record.gradient_norm.tolist()[2:] == [one.gradient_norm for one in diagnostics[2:]]
    assert record.displacement.tolist() == [one.displacement for one in diagnostics]
    assert np.isnan(record.loss[1])
    assert record.learned.tolist() == [True, False, True, True]
    assert record.reasons == ("", "40 of 40 samples are not finite", "", "")
    assert record.sizes.tolist() == [40, 40, 40, 10]
    assert record.method == "ssa"
    assert np.isnan(record.online_r2).all()
    json.dumps(record.to_dict(), allow_nan=False)


def test_moments_are_of_the_model_before_each_step(case, batches):
    record = record_stream(regtta.Adapter(case.model, regtta.SSA(k=6, lr=0.05), case.source), batches, directions=3)
    adapter = regtta.Adapter(case.model, regtta.SSA(k=6, lr=0.05), case.source)
    basis, sd = small_models.numpy64(case.source.basis[:, :3]), small_models.numpy64(case.source.variances[:3]) ** 0.5
    for index, batch in enumerate(batches):
        z = small_models.numpy64(adapter.export()[:-1](batch))
        coordinates = (z - small_models.numpy64(case.source.mean)) @ basis
        expected = coordinates.mean(axis=0) / sd, coordinates.std(axis=0, ddof=1) / sd
        assert record.shift[index] == pytest.approx(expected[0], rel=1e-5, abs=1e-6, nan_ok=True)
        assert record.spread[index] == pytest.approx(expected[1], rel=1e-5, abs=1e-6, nan_ok=True)
        adapter.adapt(batch)
    assert np.isfinite(record.shift[[0, 2, 3]]).all()


def test_the_source_itself_has_no_shift_and_its_own_spread(case):
    adapter = regtta.Adapter(case.model, regtta.NoAdaptation(), case.source)
    record = record_stream(adapter, [small_models.table(300)])
    assert record.shift == pytest.approx(np.zeros((1, 5)), abs=1e-5)
    assert record.spread == pytest.approx(np.ones((1, 5)), abs=1e-5)


def test_online_r2_is_over_all_finite_predictions_so_far(case, batches, labels):
    record = record_stream(regtta.Adapter(case.model, regtta.SSA(k=6), case.source), batches, labels)
    steps = regtta.Adapter(case.model, regtta.SSA(k=6), case.source).run(batches)
    predictions = [step.predictions for step in steps]
    for seen in range(1, 5):
        y, p = torch.cat(labels[:seen]), torch.cat(predictions[:seen])
        finite = p.isfinite().all(dim=1)
        assert record.online_r2[seen - 1] == pytest.approx(r2_score(y[finite].double(), p[finite].double()))
    assert record.unpredicted.tolist() == [0, 40, 0, 0]


def test_batches_before_the_first_label_have_no_score(case, labels):
    adapter = regtta.Adapter(case.model, regtta.NoAdaptation(), case.source)
    lost = torch.full((40, 5), torch.nan)
    record = record_stream(adapter, [lost, small_models.table(40)], labels[:2])
    assert np.isnan(record.online_r2[0])
    assert np.isfinite(record.online_r2[1])
    assert record.unpredicted.tolist() == [40, 0]


def test_labels_reach_only_a_method_that_learns_from_them(case, labels):
    x = small_models.table(130, shift=1.0).split(40)
    oracle = record_stream(regtta.Adapter(case.model, regtta.Oracle(), case.source), x, labels)
    adapter = regtta.Adapter(case.model, regtta.Oracle(), case.source)
    assert oracle.loss.tolist() == [
        adapter.adapt(a, targets=b).diagnostics.loss for a, b in zip(x, labels, strict=True)
    ]


def test_a_batch_of_one_has_no_spread(case):
    record = record_stream(regtta.Adapter(case.model, regtta.SSA(k=2), case.source), [small_models.table(1)])
    assert np.isfinite(record.shift).all()
    assert np.isnan(record.spread).all()


def test_no_moments_without_source_or_directions(case):
    for adapter, directions in (
        (regtta.Adapter(case.model, regtta.BNAdapt()), 5),
        (regtta.Adapter(case.model, regtta.SSA(k=2), case.source), 0),
    ):
        record = record_stream(adapter, [small_models.table(40)], directions=directions)
        assert record.shift.shape == record.spread.shape == (1, 0)


def test_directions_are_limited_to_the_rank(case):
    record = record_stream(
        regtta.Adapter(case.model, regtta.NoAdaptation(), case.source), [small_models.table(40)], directions=99
    )
    assert record.shift.shape == (1, case.source.rank)


def test_batches_may_be_dicts(case):
    adapter = regtta.Adapter(case.model, regtta.NoAdaptation(), case.source)
    record = record_stream(adapter, [{"image": small_models.table(40), "age": torch.zeros(40)}], inputs="image")
    assert record.sizes.tolist() == [40]


@pytest.mark.parametrize(("count", "labelled"), [(2, 1), (1, 2)])
def test_unpaired_labels_are_rejected(case, labels, count, labelled):
    adapter = regtta.Adapter(case.model, regtta.NoAdaptation(), case.source)
    with pytest.raises(BatchError, match="one tensor of targets for each batch"):
        record_stream(adapter, small_models.table(80).split(40)[:count], labels[:labelled])


def test_invalid_arguments_are_rejected(case):
    adapter = regtta.Adapter(case.model, regtta.NoAdaptation(), case.source)
    with pytest.raises(BatchError, match="no batches"):
        record_stream(adapter, [])
    with pytest.raises(OptionError, match="directions"):
        record_stream(adapter, [small_models.table(4)], directions=-1)
