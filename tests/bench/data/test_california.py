import gzip
import hashlib
import logging

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.published_datasets import CALIFORNIA_COLUMNS, write_california
from helpers.real_data import FOLDER, needs_real_data
from regtta.errors import ExistingFileError, InvalidFileError, MissingFileError
from regtta_bench.data import california as module
from regtta_bench.data.california import california, download_california

NUMERIC = list(CALIFORNIA_COLUMNS)


@pytest.fixture
def folder(tmp_path):
    write_california(tmp_path)
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


def test_a_missing_or_foreign_file_says_what_to_get(tmp_path, folder):
    with pytest.raises(MissingFileError, match=r"Kaggle.*public domain.*put it at .*california_housing/housing.csv.gz"):
        california(tmp_path / "california_housing", seed=0)
    half = pd.DataFrame({"median_house_value": [1.0, 2.0]})
    half.to_csv(folder / "california_housing" / "housing.csv.gz", index=False)
    with pytest.raises(InvalidFileError, match="'ocean_proximity'"):
        california(folder, seed=0)
    pd.DataFrame({"a": [1.0]}).to_csv(folder / "california_housing" / "housing.csv.gz", index=False)
    with pytest.raises(InvalidFileError, match="'median_house_value' and 'ocean_proximity'"):
        california(folder, seed=0)


def test_files_that_are_not_tables_are_rejected(folder):
    path = folder / "california_housing" / "housing.csv.gz"
    whole = path.read_bytes()
    for raw in (b"not gzip", whole[:-20], whole[:50]):
        path.write_bytes(raw)
        with pytest.raises(InvalidFileError, match="is not a complete gzip file"):
            california(folder, seed=0)
    for text in (b"", b"a,b\n1,2,3\n4,5,6,7\n", b"\xff\xfe"):
        path.write_bytes(gzip.compress(text))
        with pytest.raises(InvalidFileError, match="cannot be read as a CSV table"):
            california(folder, seed=0)


def test_an_unknown_table_raises_a_warning(folder, caplog, monkeypatch):
    with caplog.at_level(logging.WARNING):
        california(folder, seed=0)
    assert "is not the California Housing table" in caplog.text
    caplog.clear()
    raw = gzip.decompress((folder / "california_housing" / "housing.csv.gz").read_bytes())
    monkeypatch.setattr(module, "CALIFORNIA_SHA256", hashlib.sha256(raw).hexdigest())
    california(folder, seed=0)
    assert not caplog.records


def test_the_table_is_downloaded_to_the_path_that_is_searched(folder, tmp_path, monkeypatch):
    calls = []

    def download_file(url, path, **options):
        calls.append((url, options["sha256"], options["limit"]))
        path.write_bytes(gzip.decompress((folder / "california_housing" / "housing.csv.gz").read_bytes()))
        return path

    monkeypatch.setattr(module, "download_file", download_file)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    path = download_california(fresh)
    assert path == fresh / "california_housing" / "housing.csv"
    url, sha256, limit = calls.pop()
    assert url.startswith("https://raw.githubusercontent.com/ageron/handson-ml/")
    assert sha256 == "8a3727f4cf54ac1a327f69b1d5b4db54c5834ea81c6e4efc0d163300022a685e"
    assert limit == 16 * 2**20
    assert len(california(fresh, seed=0).target) == 19
    for there in (fresh, folder):
        with pytest.raises(ExistingFileError, match="exists. Use it as it is, or remove it first"):
            download_california(there)
    with pytest.raises(MissingFileError, match="There is no folder"):
        download_california(tmp_path / "absent")
    assert not calls


@needs_real_data
@pytest.mark.real_data
def test_the_real_table(caplog):
    shift = california(FOLDER, seed=0)
    assert not caplog.records  # it is the known one
    assert len(shift.train) + len(shift.validation) == 18_163
    assert len(shift.target) == 2_270
    # The target's labels differ from the source's by about half a standard deviation.
    assert 0.4 < shift.target.targets.mean().item() < 0.7
