from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regtta.cli.data import tables
from regtta.cli.data.formats import csv_frames, parquet_frames
from regtta.cli.data.open_data import DataOptions, open_data
from regtta.cli.data.tables import rebatch
from regtta.errors import BatchError, FileError, OptionError


def read(path: Path, **options: object) -> tuple[torch.Tensor, torch.Tensor | None, list[int]]:
    data = open_data(DataOptions(str(path), **options), batch_size=4)
    batches = list(data.batches())
    targets = [b.targets for b in batches if b.targets is not None]
    return (
        torch.cat([b.inputs for b in batches]),
        torch.cat(targets) if targets else None,
        [len(b.inputs) for b in batches],
    )


@pytest.fixture
def frame() -> pd.DataFrame:
    values = np.random.default_rng(0).normal(size=(11, 3))
    return pd.DataFrame(values, columns=["a", "b", "y"])


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 7))
def test_rebatching_keeps_every_row_in_order(sizes, size):
    rows = np.arange(sum(sizes), dtype=np.float64)[:, None]
    chunks = iter(np.split(rows, np.cumsum(sizes)[:-1]) if sizes else [])
    pieces = list(rebatch(chunks, size))
    assert [len(piece) for piece in pieces[:-1]] == [size] * (len(pieces) - 1)
    assert all(1 <= len(piece) <= size for piece in pieces)
    assert np.array_equal(np.concatenate([*pieces, np.empty((0, 1))]), rows)


def test_batches_run_across_chunks_of_the_file(tmp_path: Path, frame, monkeypatch):
    monkeypatch.setattr(tables, "_CHUNK_ROWS", 3)
    frame.to_csv(tmp_path / "t.csv", index=False)
    inputs, targets, sizes = read(tmp_path / "t.csv", target="y")
    assert sizes == [4, 4, 3]
    assert inputs.dtype == torch.float32
    assert torch.equal(inputs, torch.tensor(frame[["a", "b"]].to_numpy(np.float32)))
    assert targets.dtype == torch.float64
    np.testing.assert_allclose(targets.numpy(), frame["y"].to_numpy(), rtol=1e-15)


def test_a_bounded_part_of_a_file_is_held_in_memory(tmp_path: Path, frame):
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=5)
    assert max(len(part) for part in csv_frames(tmp_path / "t.csv", ["a"], 2)) == 2
    assert max(len(part) for part in parquet_frames(tmp_path / "t.parquet", ["a"], 2)) == 2


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_columns_are_selected_in_order(tmp_path: Path, frame, ending):
    path = tmp_path / f"t.{ending}"
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    inputs, targets, _ = read(path, columns=("y", "a"))
    assert torch.equal(inputs, torch.tensor(frame[["y", "a"]].to_numpy(np.float32)))
    assert targets is None


def test_several_targets(tmp_path: Path, frame):
    frame.to_csv(tmp_path / "t.csv", index=False)
    inputs, targets, _ = read(tmp_path / "t.csv", target="y, b")
    assert inputs.shape == (11, 1)
    np.testing.assert_allclose(targets.numpy(), frame[["y", "b"]].to_numpy(), rtol=1e-15)


def test_empty_cells_are_nan_and_integers_and_booleans_are_numbers(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,,True\n2,3.5,False\n")
    expected = torch.tensor([[1.0, float("nan"), 1.0], [2.0, 3.5, 0.0]])
    inputs, _, _ = read(tmp_path / "t.csv")
    assert torch.equal(inputs.isnan(), expected.isnan())
    assert torch.equal(inputs.nan_to_num(-1), expected.nan_to_num(-1))


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert read(tmp_path / "t.csv", columns=("a",))[0].tolist() == [[1.0]]


def test_the_pandas_index_is_not_a_column(tmp_path: Path, frame):
    frame.set_index(pd.Index(range(100, 111), name="id")).to_parquet(tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet")[0].shape == (11, 3)


def test_text_is_rejected_with_its_column_row_and_value(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(tables, "_CHUNK_ROWS", 2)
    (tmp_path / "t.csv").write_text("a,city\n1,2\n2,3\n3,4\n4,Oslo\n")
    with pytest.raises(BatchError, match=r"'city' of .*t.csv is not numeric: row 4 holds 'Oslo'. .*--columns"):
        read(tmp_path / "t.csv")
    assert read(tmp_path / "t.csv", columns=("a",))[0].shape == (4, 1)


def test_dates_in_parquet_are_rejected(tmp_path: Path, frame):
    frame.assign(day=pd.Timestamp("2024-01-01")).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(BatchError, match="'day' of .* is not numeric"):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize("options", [{"target": "yy"}, {"columns": ("a", "yy")}])
def test_a_missing_column_is_reported_with_the_existing_ones(tmp_path: Path, frame, options):
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(OptionError, match="no column 'yy'; it has a, b, y. Did you mean 'y'"):
        read(tmp_path / "t.csv", **options)


@pytest.mark.parametrize("options", [{"columns": ("a", "y"), "target": "y"}, {"columns": ("y", "y")}])
def test_a_column_named_twice_is_rejected(tmp_path: Path, frame, options):
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(OptionError, match="'y' is named twice"):
        read(tmp_path / "t.csv", **options)


def test_a_table_without_input_columns_is_rejected(tmp_path: Path):
    (tmp_path / "t.csv").write_text("y\n1\n")
    with pytest.raises(BatchError, match="no column left for inputs: it holds y"):
        read(tmp_path / "t.csv", target="y")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"1.0,2.0\n3.0,4.0\n", "no header: its first line is 1.0, 2.0"),
        ("t.csv", b"a;b\n1;2\n", "not separated by commas: its first line is 'a;b'"),
        ("t.csv", b"", "Could not read .*t.csv: No columns to parse"),
        ("t.csv", b"a,b\n\xff\xfe,1\n", "Could not read .*t.csv: .*utf-8"),
        ("t.csv.gz", b"not gzipped", "Could not read .*t.csv.gz"),
        ("t.parquet", b"not parquet", "Could not read .*t.parquet"),
    ],
)
def test_files_whose_contents_do_not_match_their_suffix(tmp_path: Path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=words):
        read(tmp_path / name)


def test_a_truncated_gzip_file_is_rejected(tmp_path: Path, frame):
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    whole = (tmp_path / "t.csv.gz").read_bytes()
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match=r"Could not read .*t.csv.gz"):
        read(tmp_path / "t.csv.gz")


def test_long_lists_of_columns_are_truncated(tmp_path: Path):
    pd.DataFrame(np.zeros((1, 30)), columns=[f"c{i}" for i in range(30)]).to_csv(tmp_path / "t.csv")
    with pytest.raises(OptionError, match="c10 and 19 more"):
        read(tmp_path / "t.csv", target="zzz")
