from pathlib import Path

import pytest
import torch

from regtta.cli.data.open_data import DataOptions, open_data, split_names
from regtta.errors import MissingFileError, OptionError


def test_every_format_gives_the_same_batches(workspace: Path):
    read = []
    for name in ("target.csv", "target.csv.gz", "target.parquet", "target.npz"):
        batches = list(open_data(DataOptions(name, target="y"), batch_size=16).batches())
        assert [len(b.inputs) for b in batches] == [16, 16, 16, 16, 6]
        read.append((torch.cat([b.inputs for b in batches]), torch.cat([b.targets for b in batches])))
    for inputs, targets in read[1:]:
        assert torch.equal(inputs, read[0][0])
        assert torch.equal(targets, read[0][1])


def test_the_number_of_rows_is_known_if_the_file_states_it(workspace: Path):
    known = {
        name: open_data(DataOptions(name), batch_size=1).rows for name in ("target.csv", "target.parquet", "target.npz")
    }
    assert known == {"target.csv": None, "target.parquet": 70, "target.npz": 70}


def test_the_models_precision_is_kept(workspace: Path):
    batch = next(open_data(DataOptions("target.csv"), batch_size=2, dtype=torch.float64).batches())
    assert batch.inputs.dtype == torch.float64


@pytest.mark.parametrize("name", ["nothing.csv", "nothing", "folder/none.npz"])
def test_a_missing_file_is_reported(workspace: Path, name):
    with pytest.raises(MissingFileError, match=rf"no file {name}. Expected a .csv.*package.module:loader"):
        open_data(DataOptions(name), batch_size=1)


def test_an_unsupported_kind_is_rejected(workspace: Path):
    with pytest.raises(OptionError, match="mymodel.py is of an unsupported kind. Expected a .csv"):
        open_data(DataOptions("mymodel.py"), batch_size=1)


def test_inputs_do_not_apply_to_tables(workspace: Path):
    with pytest.raises(OptionError, match="--inputs does not apply to a table. Select columns with --columns"):
        open_data(DataOptions("target.csv", inputs="a"), batch_size=1)


def test_empty_names_are_dropped():
    assert split_names("") == ()
    assert split_names("a,,b ") == ("a", "b")
