"""Saving, loading and validation of files of source statistics."""

import json

import pytest
import torch
from safetensors.torch import save_file

from helpers.source_statistics import features, statistics_of
from regtta.errors import (
    ExistingFileError,
    InvalidFileError,
    MissingFileError,
    NewerFormatError,
    TruncatedFileError,
    UnsafePickleError,
)
from regtta.statistics.source import SourceStatistics
from regtta.statistics.source_files import STATISTICS_FORMAT_VERSION


def test_saving_and_loading_restores_every_value(tmp_path):
    source = statistics_of(features(), extras={"method/histogram": torch.rand(3, 4)})
    source.save(tmp_path / "s.safetensors")
    again = SourceStatistics.load(tmp_path / "s.safetensors")
    for name in ("mean", "variances", "basis", "feature_variances"):
        assert torch.equal(getattr(source, name), getattr(again, name))
    assert (again.count, again.head, again.fingerprint) == (400, "fc", "a" * 64)
    assert again.extras.keys() == {"method/histogram"}
    assert torch.equal(again.extras["method/histogram"], source.extras["method/histogram"])


def test_an_existing_file_is_not_overwritten_by_default(tmp_path):
    path = tmp_path / "s.safetensors"
    statistics_of(features()).save(path)
    kept = path.read_bytes()
    with pytest.raises(ExistingFileError, match="overwrite=True"):
        statistics_of(features(seed=1)).save(path)
    assert path.read_bytes() == kept
    statistics_of(features(seed=1)).save(path, overwrite=True)
    assert path.read_bytes() != kept
    assert list(tmp_path.iterdir()) == [path]


def test_each_broken_file_has_its_own_error(tmp_path):
    path = tmp_path / "s.safetensors"
    with pytest.raises(MissingFileError, match="There is no file"):
        SourceStatistics.load(path)
    statistics_of(features()).save(path)
    whole = path.read_bytes()
    for length in (0, 3, 8, 20, 300, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(TruncatedFileError, match=f"cut off after {length} bytes"):
            SourceStatistics.load(path)
    path.write_bytes(b"a,b\n1,2\n3,4\n5,6\n")
    with pytest.raises(InvalidFileError, match="not a safetensors file"):
        SourceStatistics.load(path)
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(InvalidFileError, match=r"not one of source statistics.*regtta.collect"):
        SourceStatistics.load(path)
    torch.save({"weight": torch.zeros(2)}, path)
    with pytest.raises(UnsafePickleError, match="never loads one"):
        SourceStatistics.load(path)


def write_changed_file(path, change, header=None):
    source = statistics_of(features())
    tensors = {name: getattr(source, name) for name in ("mean", "variances", "basis", "feature_variances")}
    metadata = {"format": STATISTICS_FORMAT_VERSION, "count": 400, "head": "fc", "fingerprint": "a"} | (header or {})
    metadata = {key: value for key, value in metadata.items() if value is not None}
    tensors = {name: value.contiguous() for name, value in change(tensors).items()}
    save_file(tensors, path, metadata={"regtta.statistics": json.dumps(metadata)})


def test_a_newer_format_and_damaged_contents(tmp_path):
    path = tmp_path / "s.safetensors"
    write_changed_file(path, lambda t: t, {"format": STATISTICS_FORMAT_VERSION + 1, "regtta": "99.0"})
    with pytest.raises(NewerFormatError, match=r"Upgrade regtta.*99\.0"):
        SourceStatistics.load(path)
    write_changed_file(path, lambda t: t, {"head": None})
    with pytest.raises(InvalidFileError, match=r"lacks \['head'\]"):
        SourceStatistics.load(path)
    write_changed_file(path, lambda t: {k: v for k, v in t.items() if k != "basis"})
    with pytest.raises(InvalidFileError, match="expected 'basis' of shape \\(6, 6\\), found nothing"):
        SourceStatistics.load(path)
    write_changed_file(path, lambda t: {k: v for k, v in t.items() if k != "mean"})
    with pytest.raises(InvalidFileError, match="expected 'mean'"):
        SourceStatistics.load(path)
    write_changed_file(path, lambda t: t | {"variances": torch.zeros(3, dtype=torch.float64)})
    with pytest.raises(InvalidFileError, match="'variances' of shape \\(6,\\), found shape \\(3,\\)"):
        SourceStatistics.load(path)
    for wrong in (with_nan, with_float32):
        write_changed_file(path, wrong)
        with pytest.raises(InvalidFileError, match="'mean' is not finite float64"):
            SourceStatistics.load(path)
    write_changed_file(path, lambda t: t)
    assert SourceStatistics.load(path).count == 400


def with_nan(tensors):
    return tensors | {"mean": torch.full((6,), torch.nan, dtype=torch.float64)}


def with_float32(tensors):
    return tensors | {"mean": tensors["mean"].float()}


def with_row(values, row, value):
    changed = values.clone()
    changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: {"variances": with_row(t["variances"], 5, -1e-3)}, "'variances' has negative values"),
        (
            lambda t: {"feature_variances": with_row(t["feature_variances"], 0, -1.0)},
            "'feature_variances' has negative",
        ),
        (lambda t: {"variances": t["variances"].flip(0)}, "'variances' are not in descending order"),
        (lambda t: {"basis": t["basis"] * 2}, "not orthonormal"),
        (lambda t: {"basis": torch.zeros_like(t["basis"])}, "not orthonormal"),
        (lambda t: {"basis": with_row(t["basis"], (slice(None), 3), t["basis"][:, 2])}, "not orthonormal"),
        (lambda t: {"basis": t["basis"] * 1e200}, "not orthonormal"),
        (lambda t: {"basis": t["basis"] + 1e-6}, "not orthonormal"),
        (lambda t: {"feature_variances": t["feature_variances"] * 1.001}, "do not match the spectrum"),
        (lambda t: {"variances": t["variances"] * 1.001}, "do not match the spectrum"),
        (
            lambda t: {name: torch.zeros_like(t[name]) for name in ("variances", "feature_variances")},
            "rank from 1 to 399, found 0",
        ),
    ],
)
def test_a_file_with_an_invalid_spectrum_is_rejected(tmp_path, change, words):
    path = tmp_path / "s.safetensors"
    write_changed_file(path, lambda tensors: tensors | change(tensors))
    with pytest.raises(InvalidFileError, match=words) as caught:
        SourceStatistics.load(path)
    assert str(path) in str(caught.value)
    assert "ollect" in str(caught.value)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"count": 1}, "count of 2 samples or more"),
        ({"count": True}, "count of 2 samples or more"),
        ({"count": 4}, "rank from 1 to 3, found 4"),
        ({"head": 3}, "'head' to be a string"),
        ({"fingerprint": ["a"]}, "'fingerprint' to be a string"),
    ],
)
def test_a_file_with_invalid_metadata_is_rejected(tmp_path, header, words):
    path = tmp_path / "s.safetensors"
    write_changed_file(path, lambda tensors: tensors, header)
    with pytest.raises(InvalidFileError, match=words):
        SourceStatistics.load(path)


def with_inputs(**changes):
    tensors = {
        "input_ranges": torch.ones(2, dtype=torch.float64),
        "input_mean": torch.tensor([-1.0, 2.0], dtype=torch.float64),
        "input_variance": torch.ones(2, dtype=torch.float64),
    }
    changed = {name: value for name, value in (tensors | changes).items() if value is not None}
    return lambda others: others | changed


INPUTS = {"columns": ["a", "b"], "input_count": 400}


def test_columns_and_moments_of_the_inputs_are_read(tmp_path):
    path = tmp_path / "s.safetensors"
    write_changed_file(path, with_inputs(), INPUTS)
    found = SourceStatistics.load(path)
    assert (found.columns, found.input_count) == (("a", "b"), 400)
    assert (found.input_mean.tolist(), found.input_variance.tolist()) == ([-1.0, 2.0], [1.0, 1.0])
    write_changed_file(path, lambda tensors: tensors)  # as written by 0.1.0
    found = SourceStatistics.load(path)
    assert (found.columns, found.input_count) == ((), 0)
    assert found.input_mean.shape == found.input_variance.shape == (0,)


def test_a_wide_table_has_names_and_moments_of_one_column(tmp_path):
    path = tmp_path / "s.safetensors"
    one = {name: torch.ones(1).double() for name in ("input_ranges", "input_mean", "input_variance")}
    names = {"columns": [str(number) for number in range(300)]}
    write_changed_file(path, with_inputs(**one), INPUTS | names)
    assert len(SourceStatistics.load(path).columns) == 300


@pytest.mark.parametrize(
    ("changes", "header", "words"),
    [
        ({}, {"columns": "ab"}, "'columns' are not a list of names"),
        ({}, {"columns": ["a", 3]}, "'columns' are not a list of names"),
        ({}, {"columns": {"a": 1}}, "'columns' are not a list of names"),
        ({}, {"columns": ["a", "a"]}, "'columns' has 'a' twice"),
        ({}, {"columns": ["a", "b", "c"]}, "'input_ranges' has 2 values for 3 columns"),
        ({"input_ranges": None}, {"columns": ["a"]}, "'input_mean' has 2 values for 1 columns"),
        ({}, {"input_count": 1}, "'input_count'"),
        ({}, {"input_count": "400"}, "'input_count'"),
        ({}, {"input_count": True}, "'input_count'"),
        ({}, {"input_count": 10**400}, "'input_count'"),
        ({"input_mean": None, "input_variance": None}, {}, "'input_count'"),
        ({"input_mean": None}, {}, "different lengths"),
        ({"input_variance": torch.ones(3, dtype=torch.float64)}, {}, "different lengths"),
        ({"input_mean": torch.ones(2)}, {}, "'input_mean' is not one finite float64"),
        ({"input_mean": torch.ones(2, 1, dtype=torch.float64)}, {}, "'input_mean' is not one finite float64"),
        ({"input_mean": torch.tensor([0, torch.nan]).double()}, {}, "'input_mean' is not one finite float64"),
        ({"input_variance": torch.tensor([0, torch.inf]).double()}, {}, "'input_variance' is not one finite float64"),
        ({"input_variance": torch.tensor([1, -1]).double()}, {}, "'input_variance' has negative values"),
        ({"input_ranges": torch.tensor([1, -1]).double()}, {}, "'input_ranges' has negative values"),
    ],
)
def test_a_file_with_invalid_columns_or_input_moments_is_rejected(tmp_path, changes, header, words):
    path = tmp_path / "s.safetensors"
    write_changed_file(path, with_inputs(**changes), INPUTS | header)
    with pytest.raises(InvalidFileError, match=words) as caught:
        SourceStatistics.load(path)
    assert "collect the statistics again" in str(caught.value)


def deep_features(dtype):
    """Return features like those of networks: rectified, some constant, very different scales, fewer samples than D."""
    values = torch.randn(200, 300, generator=torch.Generator().manual_seed(0)).relu()
    values *= torch.logspace(-6, 3, 300)
    values[:, ::7] = 0
    values[:, 11] = 4096.0
    return (values + torch.linspace(0, 100, 300)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [2, 3, 200])
def test_all_collected_statistics_can_be_loaded(tmp_path, dtype, rows):
    data = deep_features(dtype)[:rows]
    whole = statistics_of(data)
    merged = statistics_of(data[: rows // 2 + 1]).merge(statistics_of(data[-2:])) if rows > 2 else whole
    for number, source in enumerate((whole, merged)):
        source.save(tmp_path / f"{number}.safetensors")
        assert SourceStatistics.load(tmp_path / f"{number}.safetensors").rank == source.rank > 0
