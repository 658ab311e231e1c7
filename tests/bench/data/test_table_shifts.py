import numpy as np
import pytest
import torch

from helpers.published_datasets import write_tables
from regtta.errors import OptionError
from regtta_bench.data import TABLE_DOMAINS, table_shifts
from regtta_bench.data.table_shifts import TableShifts


@pytest.fixture
def folder(tmp_path):
    write_tables(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("data", "source"), [(data, source) for data in TABLE_DOMAINS for source in TABLE_DOMAINS[data]]
)
def test_a_third_is_held_out_and_everything_is_standardised_by_the_training_rows(folder, data, source):
    shifts = TableShifts(folder, data, source, seed=3)
    rows = TABLE_DOMAINS[data][source](folder)
    assert len(shifts.validation) == round(len(rows) / 3)
    assert len(shifts.train) + len(shifts.validation) == len(rows)
    inputs = shifts.train.inputs.numpy()
    np.testing.assert_allclose(inputs.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(inputs.std(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(shifts.train.targets.numpy().std(), 1, rtol=1e-5)
    assert (data == "cmapss") == (inputs.shape[1] < rows.inputs.shape[1])  # constant columns are dropped


def test_another_domain_is_a_target_as_a_whole_in_the_units_of_the_source(folder):
    shifts = TableShifts(folder, "wine", "white", seed=0)
    white, red = (TABLE_DOMAINS["wine"][name](folder) for name in ("white", "red"))
    order = torch.randperm(len(white), generator=torch.Generator().manual_seed(0))
    train = white.inputs[order[20:]].numpy()
    expected = (red.inputs.numpy() - train.mean(axis=0)) / train.std(axis=0)
    np.testing.assert_allclose(shifts.target("red").inputs, expected, rtol=1e-5, atol=1e-6)
    labels = white.targets[order[20:]].numpy()
    np.testing.assert_allclose(shifts.target("red").targets, (red.targets - labels.mean()) / labels.std(), rtol=1e-5)


def test_a_large_target_is_drawn_at_random_in_its_order(folder, monkeypatch):
    whole = TableShifts(folder, "wine", "white", seed=4).target("red")
    monkeypatch.setattr(table_shifts, "MAX_TARGET_ROWS", 7)
    drawn = torch.randperm(len(whole), generator=torch.Generator().manual_seed(4))[:7]
    found = TableShifts(folder, "wine", "white", seed=4).target("red")
    assert torch.equal(found.inputs, whole.inputs[drawn.sort().values])
    assert torch.equal(found.targets, whole.targets[drawn.sort().values])


def test_faulty_sensors_are_those_of_the_held_out_rows_in_the_units_of_the_file(folder):
    shifts = TableShifts(folder, "cmapss", "fd001", seed=0)
    rows = TABLE_DOMAINS["cmapss"]["fd001"](folder)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    held_out, train = (rows.inputs[part].numpy() for part in order.split([len(shifts.validation), len(shifts.train)]))
    columns = np.arange(train.shape[1]) % 3 == 0
    drifted = np.where(columns, 1.4 * held_out + 0.8 * train.std(axis=0), held_out)
    dropped = np.where(columns, train.min(axis=0), held_out)
    varies = train.std(axis=0) > 0
    for name, faulty in (("drift", drifted), ("dropout", dropped)):
        expected = ((faulty - train.mean(axis=0))[:, varies]) / train.std(axis=0)[varies]
        np.testing.assert_allclose(shifts.target(name).inputs, expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(shifts.target(name).targets, shifts.validation.targets)


def test_a_column_that_is_constant_on_the_source_is_dropped(folder):
    shifts = TableShifts(folder, "cmapss", "fd001", seed=0)
    rows = TABLE_DOMAINS["cmapss"]["fd001"](folder).inputs
    assert shifts.train.inputs.shape[1] == int((rows.std(dim=0) > 0).sum()) < rows.shape[1]
    assert shifts.target("weak_drift").inputs.shape[1] == shifts.train.inputs.shape[1]


def test_unknown_domains_are_errors(folder):
    with pytest.raises(OptionError, match="the source"):
        TableShifts(folder, "wine", "rose", seed=0)
    with pytest.raises(OptionError, match="the target"):
        TableShifts(folder, "wine", "white", seed=0).target("rose")
