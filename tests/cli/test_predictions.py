from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from regtta.cli import predictions
from regtta.cli.predictions import prediction_file, prediction_frame, reordered
from regtta.errors import ModelError, OptionError


def read(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_batches_are_appended_exactly(tmp_path: Path, ending, monkeypatch):
    monkeypatch.setattr(predictions, "_ROWS_AT_ONCE", 5)
    values, labels = torch.randn(12, 1), torch.randn(12, dtype=torch.float64)
    path = tmp_path / f"p.{ending}"
    with prediction_file(path, ("age",)) as writer:
        for batch, truth in zip(values.split(4), labels.split(4), strict=True):
            writer.write(batch, truth)
    table = read(path)
    assert list(table.columns) == ["prediction", "age"]
    assert np.array_equal(table["prediction"].to_numpy(np.float32), values.squeeze(1).numpy())
    assert np.array_equal(table["age"].to_numpy(), labels.numpy())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_values_that_are_not_finite_keep_their_rows(tmp_path: Path, ending):
    path = tmp_path / f"p.{ending}"
    with prediction_file(path, ()) as writer:
        writer.write(torch.tensor([1.0, float("nan"), float("inf")]), None)
    found = read(path)["prediction"].to_numpy()
    assert np.array_equal(found, [1.0, np.nan, np.inf], equal_nan=True)
    if ending == "csv":
        assert path.read_text() == "prediction\n1.0\nnan\ninf\n"


def test_unfinished_files_are_removed(tmp_path: Path):
    def broken_off() -> None:
        with prediction_file(tmp_path / "p.parquet", ()) as writer:
            writer.write(torch.zeros(2), None)
            writer.flush()
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        broken_off()
    assert list(tmp_path.iterdir()) == []


def test_names_of_columns():
    two, one = torch.zeros(3, 2), torch.zeros(3)
    assert list(prediction_frame(two, two, ("a", "b")).columns) == ["prediction_0", "prediction_1", "a", "b"]
    assert list(prediction_frame(one, two, ("y",)).columns) == ["prediction", "y_0", "y_1"]


def test_names_of_samples_come_first_and_follow_the_rows(tmp_path):
    path = tmp_path / "p.csv"
    with prediction_file(path, ("y",), ["a.png", "b.png", "c.png"]) as writer:
        writer.write(torch.zeros(2), torch.ones(2))
        writer.write(torch.zeros(1), torch.ones(1))
    assert path.read_text().splitlines() == ["name,prediction,y", "a.png,0.0,1.0", "b.png,0.0,1.0", "c.png,0.0,1.0"]


def test_a_label_named_like_a_prediction_is_rejected():
    with pytest.raises(OptionError, match="label 'prediction' has the name of a column of the predictions. Rename it"):
        prediction_frame(torch.zeros(2), torch.zeros(2), ("prediction",))


def test_half_precision_and_gradients_are_supported():
    values = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    assert prediction_frame(values, None, ())["prediction"].tolist() == [1.0, 1.0]


def test_dense_outputs_are_rejected():
    with pytest.raises(ModelError, match=r"\(B,\) or \(B, O\), found \(2, 1, 4\)"):
        prediction_frame(torch.zeros(2, 1, 4), None, ())


class Recorded:
    def __init__(self):
        self.calls = []

    def write(self, predictions, targets):
        self.calls.append((predictions, targets))


def test_reordering_restores_the_original_order():
    sink, order = Recorded(), torch.tensor([2, 0, 3, 1])
    values, labels = torch.tensor([10.0, 11, 12, 13]), torch.tensor([0.0, 1, 2, 3])
    with reordered(sink, order) as kept:
        for rows in order.split(3):
            kept.write(values[rows], labels[rows])
    (found, truth) = sink.calls[0]
    assert torch.equal(found, values)
    assert torch.equal(truth, labels)
