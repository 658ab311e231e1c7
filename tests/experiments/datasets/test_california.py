import numpy as np
import pandas as pd
import pytest
import torch

from real_data import FOLDER, needs_real_data
from regtta.errors import ForeignFileError, MissingFileError
from regtta.experiments.datasets.california import california, held_out
from regtta.experiments.datasets.domains import Domain

NUMERIC = [
    "longitude",
    "latitude",
    "housing_median_age",
    "total_rooms",
    "total_bedrooms",
    "population",
    "households",
    "median_income",
    "median_house_value",
]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(3, 2, (60, 9)), columns=NUMERIC)
    table["ocean_proximity"] = ["INLAND", "NEAR BAY", "<1H OCEAN"] * 20
    table.loc[[0, 1], "total_bedrooms"] = np.nan
    (tmp_path / "california_housing").mkdir()
    table.to_csv(tmp_path / "california_housing" / "housing.csv.gz", index=False)
    return tmp_path


def test_source_and_target_are_standardised_by_the_source(folder):
    shift = california(folder, seed=0)
    table = pd.read_csv(folder / "california_housing" / "housing.csv.gz").dropna()
    near = table["ocean_proximity"] == "NEAR BAY"
    assert (len(shift.train) + len(shift.validation), len(shift.target)) == (39, 19)
    assert len(shift.validation) == 4
    source = torch.cat([shift.train.inputs, shift.validation.inputs])
    torch.testing.assert_close(source.mean(0), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(source.std(0, correction=0), torch.ones(8), atol=1e-5, rtol=0)
    label = table["median_house_value"]
    expected = (label[near] - label[~near].mean()) / label[~near].std(ddof=0)
    np.testing.assert_allclose(shift.target.targets[:, 0], expected, rtol=1e-5)
    age = table["housing_median_age"]
    expected = (age[near] - age[~near].mean()) / age[~near].std(ddof=0)
    np.testing.assert_allclose(shift.target.inputs[:, 2], expected, rtol=1e-5, atol=1e-6)


def test_what_is_held_out_is_random_disjoint_and_the_same_for_the_same_seed():
    domain = Domain(torch.arange(50.0).unsqueeze(1), torch.arange(50.0).unsqueeze(1))
    train, validation = held_out(domain, 0.1, seed=3)
    assert (len(train), len(validation)) == (45, 5)
    assert sorted(torch.cat([train.inputs, validation.inputs])[:, 0].tolist()) == list(range(50))
    assert torch.equal(train.inputs, train.targets)
    assert torch.equal(held_out(domain, 0.1, seed=3)[1].inputs, validation.inputs)
    assert not torch.equal(held_out(domain, 0.1, seed=4)[1].inputs, validation.inputs)


def test_a_missing_or_foreign_file_says_what_to_get(tmp_path, folder):
    with pytest.raises(MissingFileError, match=r"Kaggle.*public domain.*put it at .*california_housing/housing.csv.gz"):
        california(tmp_path / "california_housing", seed=0)
    pd.DataFrame({"a": [1.0]}).to_csv(folder / "california_housing" / "housing.csv.gz", index=False)
    with pytest.raises(ForeignFileError, match="'median_house_value' and 'ocean_proximity'"):
        california(folder, seed=0)


@needs_real_data
@pytest.mark.real_data
def test_the_real_table():
    shift = california(FOLDER, seed=0)
    assert len(shift.train) + len(shift.validation) == 18_163
    assert len(shift.target) == 2_270
    # The target's labels differ from the source's by about half a standard deviation.
    assert 0.4 < shift.target.targets.mean().item() < 0.7
