"""``regtta collect`` and ``regtta adapt`` on folders of images."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import regtta as library
from helpers.cli_images import FOLDER, MODEL, NAMES, SIZE, make_photos
from helpers.cli_processes import make_worker_group, result_or_error
from helpers.process_groups import run_in_processes
from regtta.cli.adapt import AdaptOptions, adapt_model
from regtta.cli.adapt_options import Protocol
from regtta.cli.collect import CollectOptions, collect_statistics
from regtta.cli.data.open_data import DataOptions, open_data
from regtta.cli.predictions import Tally
from regtta.errors import MismatchError
from regtta.statistics.source import SourceStatistics

COLLECT = CollectOptions(
    model="imagemodel:make_double", data="photos", image_size=SIZE, batch_size=4, out=Path("stats.safetensors")
)


@pytest.fixture
def labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pd.DataFrame]:
    """Make a folder of source and one of target images the working directory; return the labels of the target."""
    import sys

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("imagemodel", None)
    make_photos(tmp_path)
    yield make_photos(tmp_path, "target", brightness=60)
    sys.modules.pop("imagemodel", None)


@pytest.fixture
def stats(labels: pd.DataFrame) -> Path:
    collect_statistics(COLLECT)
    return COLLECT.out


def options(**others: object) -> AdaptOptions:
    chosen: dict[str, object] = {
        "settings": ("k=3", "lr=0.05"),
        "predictions": Path("p.csv"),
        "stats": COLLECT.out,
        "target": "age",
        "force": True,
    }
    chosen |= {"batch_size": 6} | others
    return AdaptOptions(model="imagemodel:make_double", data="target", image_size=SIZE, **chosen)


def inputs(folder: str = "target") -> torch.Tensor:
    data = open_data(DataOptions(folder, image_size=SIZE), batch_size=99, dtype=torch.float64)
    return next(data.batches()).inputs


def model() -> torch.nn.Module:
    import imagemodel

    return imagemodel.make_double()


def test_statistics_are_those_of_the_library(stats: Path):
    found, expected = SourceStatistics.load(stats), library.collect(model(), inputs("photos").split(4))
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.input_mean, inputs("photos").mean(dim=(0, 2, 3)))
    assert (found.count, found.columns, found.input_count) == (16, (), 16 * SIZE * SIZE)


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_have_the_names_of_their_images(stats: Path, labels: pd.DataFrame, protocol, seed, suffix):
    path = Path(f"p{suffix}")
    report = adapt_model(options(protocol=protocol, shuffle_seed=seed, predictions=path))
    assert (report.samples, report.learned) == (16, 3)
    table = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    assert list(table.columns) == ["name", "prediction", "age"]
    assert table["name"].tolist() == list(NAMES)
    assert table["age"].tolist() == labels["age"].tolist()
    adapter = library.Adapter(model(), library.SSA(k=3, lr=0.05), str(stats))
    if seed is None:
        steps = list(adapter.run(inputs().split(6)))
        online = torch.cat([step.predictions for step in steps])
        expected = online if protocol is Protocol.online else adapter.predict(inputs())
        np.testing.assert_allclose(table["prediction"], expected.squeeze(1), rtol=1e-6)


def test_without_labels_there_are_names_and_predictions(stats: Path):
    adapt_model(options(target=None))
    assert list(pd.read_csv("p.csv").columns) == ["name", "prediction"]


def test_all_outputs_on_the_command_line(labels: pd.DataFrame, regtta):
    collected = regtta("collect", *MODEL, *FOLDER, "--out", "s.safetensors")
    assert collected.exit_code == 0, collected.stderr
    line = ["adapt", *MODEL, "--stats", "s.safetensors", "--set", "k=3", "--data", "target", "--image-size", SIZE]
    line += ["--image-mean", "0.5,0.5,0.5", "--image-std", "0.5,0.5,0.5", "--target", "age", "--batch-size", "8"]
    line += ["--predictions", "p.csv", "--record", "r.json", "--export", "m.pt2", "--monitor", "m.jsonl"]
    done = regtta(*line)
    assert done.exit_code == 0, done.stderr
    assert "R²" in done.stdout
    command = json.loads(Path("r.json").read_text())["command"]
    assert f"--data target --target age --image-size {SIZE} --image-mean 0.5,0.5,0.5 --image-std 0.5" in command
    assert Path("m.pt2").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "target"], "Pass --image-size N"),
        (["--data", "targets", "--image-size", "8"], "There is no file targets. Expected a .csv"),
        ([*FOLDER, "--image-mean", "a,b,c"], "Expected numbers such as 0.5,0.5,0.5, found 'a,b,c'"),
        ([*FOLDER, "--target", "weight"], "photos/labels.csv has no column 'weight'"),
        ([*FOLDER[:3], "1"], "Images are read as (B, 3, 1, 1), red, green and blue. Change the size with --image-size"),
    ],
)
def test_mistakes_are_one_line_each(labels: pd.DataFrame, refusal, arguments, words):
    line = ["adapt", *MODEL, "--method", "bn_adapt", "--predictions", "p.csv"]
    assert words in refusal(*line, *arguments)


def test_the_labels_are_never_overwritten(labels: pd.DataFrame, refusal):
    line = ["adapt", *MODEL, "--method", "bn_adapt", *FOLDER, "--predictions", "photos/labels.csv", "--force"]
    assert "is also an input" in refusal(*line)


def test_a_label_called_name_is_rejected(stats: Path, refusal):
    table = pd.read_csv("target/labels.csv").rename(columns={"age": "name"})
    table.to_csv("target/labels.csv", index=False)
    line = ["adapt", "--model", "imagemodel:make_double", "--stats", stats, "--set", "k=3", "--data", "target"]
    line += ["--image-size", SIZE, "--target", "name", "--predictions", "p.csv"]
    assert "The label 'name' has the name of a column of the predictions" in refusal(*line)


def test_a_stream_of_images_resumes(stats: Path, monkeypatch):
    adapt_model(options(predictions=Path("whole.csv"), shuffle_seed=1, batch_size=4))
    added = Tally.add_step

    def stop(self, step):
        added(self, step)
        if step.index == 2:
            raise KeyboardInterrupt

    resumed = options(shuffle_seed=1, batch_size=4, checkpoint=Path("c.safetensors"), checkpoint_every=1, resume=True)
    with monkeypatch.context() as patch:
        patch.setattr(Tally, "add_step", stop)
        with pytest.raises(KeyboardInterrupt):
            adapt_model(resumed)
    with pytest.raises(MismatchError, match="another --image-mean"):
        adapt_model(options(**{"checkpoint": resumed.checkpoint, "resume": True}, image_mean=(0.0, 0.0, 0.0),
                            shuffle_seed=1, batch_size=4))  # fmt: skip
    adapt_model(resumed)
    assert Path("p.csv").read_bytes() == Path("whole.csv").read_bytes()


def _run(group, folder: str) -> list:
    workers = make_worker_group(group, folder)
    from dataclasses import replace

    collected = result_or_error(collect_statistics, replace(COLLECT, out=Path("two.safetensors")), None, workers)
    return [collected, result_or_error(adapt_model, options(predictions=Path("two.csv")), None, workers)]


def test_two_processes_give_the_results_of_one(stats: Path, tmp_path: Path):
    for collected, adapted in run_in_processes(2, _run, tmp_path, str(tmp_path)):
        assert (collected.samples, adapted.samples) == (16, 16)
    one, two = SourceStatistics.load(stats), SourceStatistics.load("two.safetensors")
    torch.testing.assert_close(two.covariance(), one.covariance(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(two.input_variance, one.input_variance, rtol=1e-9, atol=1e-12)
    adapt_model(options())
    pd.testing.assert_frame_equal(pd.read_csv("two.csv"), pd.read_csv("p.csv"), rtol=1e-8)
