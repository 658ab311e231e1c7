import numpy as np
import pytest
import torch

from helpers.published_datasets import write_tables
from regtta.errors import OptionError
from regtta_bench.data import TABLE_DOMAINS
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
    varies = inputs.std(axis=0) > 0
    np.testing.assert_allclose(inputs.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(inputs[:, varies].std(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(shifts.train.targets.numpy().std(), 1, rtol=1e-5)
    assert (data == "cmapss") == (not varies.all())


def test_another_domain_is_a_target_as_a_whole_in_the_units_of_the_source(folder):
    shifts = TableShifts(folder, "wine", "white", seed=0)
    white, red = (TABLE_DOMAINS["wine"][name](folder) for name in ("white", "red"))
    order = torch.randperm(len(white), generator=torch.Generator().manual_seed(0))
    train = white.inputs[order[20:]].numpy()
    expected = (red.inputs.numpy() - train.mean(axis=0)) / train.std(axis=0)
    np.testing.assert_allclose(shifts.target("red").inputs, expected, rtol=1e-5, atol=1e-6)
    labels = white.targets[order[20:]].numpy()
    np.testing.assert_allclose(shifts.target("red").targets, (red.targets - labels.mean()) / labels.std(), rtol=1e-5)


def test_faulty_sensors_are_those_of_the_held_out_rows(folder):
    shifts = TableShifts(folder, "cmapss", "fd001", seed=0)
    drifted = shifts.target("drift")
    columns = [0, 3]
    expected = shifts.validation.inputs.clone()
    expected[:, columns] = 1.4 * expected[:, columns] + 0.8
    torch.testing.assert_close(drifted.inputs, expected)
    assert torch.equal(drifted.targets, shifts.validation.targets)
    dropped = shifts.target("dropout").inputs
    torch.testing.assert_close(dropped[:, columns], shifts.train.inputs[:, columns].amin(0).expand(len(dropped), 2))


def test_a_column_that_is_constant_on_the_source_is_only_centred(folder):
    shifts = TableShifts(folder, "cmapss", "fd001", seed=0)
    assert (shifts.train.inputs[:, 1] == 0).all()
    torch.testing.assert_close(shifts.target("weak_drift").inputs[:, 1], torch.full((len(shifts.validation),), 0.4))


def test_unknown_domains_are_errors(folder):
    with pytest.raises(OptionError, match="the source"):
        TableShifts(folder, "wine", "rose", seed=0)
    with pytest.raises(OptionError, match="the target"):
        TableShifts(folder, "wine", "white", seed=0).target("rose")
