import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import r2_score

import regtta as library
from helpers import small_models
from helpers.attaching import attach
from helpers.cli_workspace import MODEL, extract_inputs, labels_of, library_model
from regtta.report import recorder as recorder_module
from regtta.report.analysis import compute_features, output_report, shift_report
from regtta.report.recorder import RunRecorder, gain_interval, write_record

SETS = ["--set", "k=3", "--set", "lr=0.05"]
ADAPT = ["adapt", *MODEL, "--stats", "stats.safetensors", *SETS, "--batch-size", "16", "--data", "target.csv"]
WITHOUT_STATISTICS = ["adapt", *MODEL, "--method", "bn_adapt", "--batch-size", "16", "--data", "target.csv"]
OF_FEATURES = {"subspace", "gradients", "statistics", "shift", "outputs", "reconstruction", "normality", "histograms"}
OF_FEATURES |= {"label_shift"}
OF_LABELS = {"predictions", "gain"}


def read(name="run.json"):
    """Read a record; constants that are not JSON are errors."""
    return json.loads(Path(name).read_text(encoding="utf-8"), parse_constant=pytest.fail)


@pytest.fixture
def recorded(workspace, statistics, regtta):
    def run(*more, common=ADAPT):
        result = regtta(*common, "--record", "run.json", *more)
        assert result.exit_code == 0, result.stderr
        return read(), result.stdout

    return run


# --- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["online", "offline"])
def test_scores_equal_the_printed_ones(recorded, protocol):
    content, shown = recorded("--target", "y", "--protocol", protocol)
    printed = {
        line.split()[0]: [float(value) for value in re.findall(r"-?\d+\.\d{4}", line)]
        for line in shown.splitlines()
        if re.search(r"\d\.\d{4}", line)
    }
    for row, key in (("unadapted", "before"), ("ssa,", "after")):
        scores = content["scores"][key]
        assert printed[row] == [round(scores[name], 4) for name in ("r2", "rmse", "mae", "pearson")]
        assert scores["count"] == 70
    assert content["protocol"] == protocol


def test_a_record_describes_the_run(recorded):
    content, shown = recorded("--target", "y")
    assert content["format"] == "regtta.adaptation/1"
    about = {
        name: content[name] for name in ("model", "data", "samples", "not_finite", "learned", "refused", "unscored")
    }
    assert about == {
        "model": "mymodel:make", "data": "target.csv", "samples": 70, "not_finite": 0, "learned": 5, "refused": {},
        "unscored": 0,
    }  # fmt: skip
    assert content["sample"] == {"rows": 70, "seen": 70}
    assert content["command"] == (
        "regtta adapt --model mymodel:make --weights weights.safetensors --stats stats.safetensors --data target.csv "
        "--target y --batch-size 16 --record run.json --set k=3 --set lr=0.05"
    )
    environment = content["environment"]
    assert environment["versions"].keys() == {"regtta", "torch", "python"}
    assert (environment["device"], environment["method"]["name"]) == ("cpu", "ssa")
    assert (environment["method"]["k"], environment["method"]["lr"]) == (3, 0.05)
    assert content.keys() >= OF_FEATURES | OF_LABELS
    assert "unmeasured" not in content
    assert shown.splitlines()[-1].split() == ["written", "run.json"]


def test_every_analysis_is_of_the_model_before_and_after_on_all_rows(recorded):
    content, _ = recorded("--target", "y")
    inputs, model = extract_inputs(Path("target.csv")), library_model()
    source = library.SourceStatistics.load("stats.safetensors")
    adapter = library.Adapter(model, library.SSA(k=3, lr=0.05), source)
    steps = list(adapter.run(inputs.split(16)))
    adapted = adapter.export()
    features = {
        "before": compute_features(model, [inputs], source.head),
        "after": compute_features(adapted, [inputs], source.head),
    }
    with torch.no_grad():
        predictions = {"before": model(inputs), "after": adapted(inputs)}
    for name, values in predictions.items():
        assert np.array(content["predictions"][name]["predictions"]) == pytest.approx(
            small_models.numpy64(values), abs=1e-5
        )
        assert np.ravel(content["predictions"][name]["labels"]) == pytest.approx(
            labels_of(Path("target.csv")), rel=1e-5
        )
    shift, outputs = shift_report(source, features), output_report(source, model[-1], predictions)
    for name in ("before", "after"):
        assert content["shift"]["means"][name] == pytest.approx(shift.means[name], abs=1e-4)
        assert content["shift"]["divergences"][name] == pytest.approx(shift.divergences[name], rel=1e-3, abs=1e-4)
        assert content["outputs"]["means"][name] == pytest.approx(outputs.means[name], abs=1e-5)
    assert content["shift"]["means"]["before"] != pytest.approx(content["shift"]["means"]["after"], abs=1e-3)
    assert content["stream"]["loss"] == pytest.approx([step.diagnostics.loss for step in steps], rel=1e-5)
    assert content["statistics"] == {"count": 120, "head": "3", "fingerprint": source.fingerprint}


def test_recording_does_not_change_the_predictions(workspace, statistics, regtta):
    for protocol in ("online", "offline"):
        names = [f"{protocol}-{kind}.csv" for kind in ("plain", "recorded")]
        for name, more in zip(names, ([], ["--record", f"{protocol}.json"]), strict=True):
            done = regtta(*ADAPT, "--target", "y", "--protocol", protocol, "--predictions", name, *more)
            assert done.exit_code == 0, done.stderr
        assert Path(names[0]).read_bytes() == Path(names[1]).read_bytes()


def test_the_same_command_writes_the_same_bytes(recorded):
    recorded("--target", "y")
    first = Path("run.json").read_bytes()
    recorded("--target", "y", "--force")
    assert Path("run.json").read_bytes().replace(b" --force", b"") == first


def test_without_labels_there_are_no_scores(recorded):
    content, _ = recorded("--columns", "a,b,c")
    assert content["scores"] is None
    assert content.keys() & OF_LABELS == set()
    assert content.keys() >= OF_FEATURES


def test_without_statistics_there_are_no_feature_analyses(recorded):
    content, _ = recorded("--target", "y", common=WITHOUT_STATISTICS)
    assert content.keys() & OF_FEATURES == set()
    assert content.keys() >= OF_LABELS
    assert content["stream"]["shift"] == [[]] * 5


def test_a_run_without_labels_and_statistics_is_recorded(recorded):
    content, _ = recorded("--columns", "a,b,c", common=WITHOUT_STATISTICS)
    assert content.keys() & (OF_FEATURES | OF_LABELS) == set()
    assert content["stream"]["sizes"] == [16, 16, 16, 16, 6]


@pytest.fixture
def holes(workspace):
    """Write data with inputs missing in two rows and a label in a third, all in the first two batches."""
    table = pd.read_csv("target.csv")
    table.loc[[3, 20], "a"] = np.nan
    table.loc[5, "y"] = np.nan
    table.to_csv("target.csv", index=False)


def test_rows_with_missing_values_are_not_sampled(statistics, holes, recorded):
    content, _ = recorded("--target", "y")
    assert content["sample"] == {"rows": 68, "seen": 68}
    assert (content["not_finite"], content["unscored"], content["learned"]) == (2, 3, 5)
    assert content["excluded"] == 2
    for name in ("before", "after"):
        assert content["predictions"][name]["scores"]["count"] == 67
        assert np.isfinite(content["predictions"][name]["predictions"]).all()
    assert None not in content["gain"].values()
    assert content["shift"]["counts"] == {"before": 68, "after": 68}


def test_a_missing_label_excludes_only_its_row_from_the_online_score(statistics, holes, recorded):
    content, _ = recorded("--target", "y")
    found = content["stream"]["online_r2"]
    assert found[-1] == pytest.approx(content["scores"]["after"]["r2"], abs=1e-6)


def test_labels_that_are_all_missing_count_as_none(recorded):
    pd.read_csv("target.csv").assign(y=np.nan).to_csv("target.csv", index=False)
    content, _ = recorded("--target", "y")
    assert content["scores"] is None
    assert content.keys() & OF_LABELS == set()


def test_constant_labels_have_no_r2(recorded):
    pd.read_csv("target.csv").assign(y=2.0).to_csv("target.csv", index=False)
    content, _ = recorded("--target", "y")
    assert content["gain"] == {"rows": 70, "mean": None, "low": None, "high": None}
    assert content["scores"]["after"]["r2"] is None
    assert content["scores"]["after"]["rmse"] > 0


def test_huge_numbers_are_valid_json(recorded):
    content, _ = recorded("--target", "y", "--set", "lr=1e30")
    assert content["gain"]["mean"] < -1e20
    assert content["stream"]["displacement"] == [None] * 5  # it overflows


def test_an_infinite_learning_rate_is_rejected(workspace, statistics, refusal):
    assert "Expected lr to be a number above 0 and finite, found inf" in refusal(
        *ADAPT, "--set", "lr=inf", "--record", "run.json"
    )


def test_several_outputs(workspace, regtta):
    pd.read_csv("target.csv").assign(z=lambda table: table["a"]).to_csv("target.csv", index=False)
    model = ["--model", "mymodel:make_two_outputs"]
    done = regtta("collect", *model, "--data", "source.csv", "--target", "y", "--out", "two.safetensors")
    assert done.exit_code == 0, done.stderr
    done = regtta("adapt", *model, "--stats", "two.safetensors", "--set", "k=2", "--data", "target.csv", "--target",
                  "y,z", "--record", "run.json")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    content = read()
    assert np.shape(content["predictions"]["after"]["labels"]) == (70, 2)
    assert len(content["outputs"]["source_means"]) == 2


def test_a_shuffled_stream_is_recorded(recorded):
    content, _ = recorded("--target", "y", "--shuffle-seed", "3")
    assert sorted(np.ravel(content["predictions"]["before"]["labels"])) == pytest.approx(
        sorted(labels_of(Path("target.csv"))), rel=1e-5
    )


def test_the_record_path_is_checked_before_any_work(workspace, statistics, regtta, refusal):
    assert "Expected --record to end in .json" in refusal(*ADAPT, "--record", "run.txt")
    Path("run.json").write_text("mine")
    assert "run.json exists" in refusal(*ADAPT, "--record", "run.json")
    assert Path("run.json").read_text() == "mine"
    assert regtta(*ADAPT, "--target", "y", "--record", "run.json", "--force").exit_code == 0
    assert read()["samples"] == 70


def test_non_finite_numbers_are_written_as_null(tmp_path):
    write_record(tmp_path / "r.json", {"loss": [1.0, float("nan")], "method": {"lr": float("inf")}})
    assert json.loads((tmp_path / "r.json").read_text()) == {"loss": [1.0, None], "method": {"lr": None}}


# --- statistics of another model or head ---------------------------------------------------------


def recorder_over(model, adapter, batches, labels=None):
    recorder = attach(RunRecorder(model), adapter)
    for place, x in enumerate(batches):
        y = None if labels is None else labels[place]
        recorder.labels = y
        adapter.adapt(x)
    return recorder


def test_before_and_after_are_features_of_the_same_layer():
    """With a head chosen by the user, both are of the same layer: without adaptation nothing moves."""
    torch.manual_seed(0)
    linear = torch.nn.Linear
    model = torch.nn.Sequential(
        linear(5, 8), torch.nn.BatchNorm1d(8), linear(8, 8), torch.nn.ReLU(), linear(8, 1)
    ).eval()
    source = library.collect(model, [small_models.table(100)])
    adapter = library.Adapter(model, library.NoAdaptation(), source, head="2", allow_mismatch=True)
    means = recorder_over(model, adapter, small_models.table(60, seed=3).split(20)).record({}, online=False)["shift"][
        "means"
    ]
    assert means["before"] == pytest.approx(means["after"])


def test_statistics_with_a_head_of_another_name_are_supported():
    """The run works with --allow-mismatch and --head, and so does its record."""
    torch.manual_seed(0)
    linear = torch.nn.Linear
    first = torch.nn.Sequential(linear(5, 8), torch.nn.BatchNorm1d(8), linear(8, 8), linear(8, 1)).eval()
    second = torch.nn.Sequential(linear(5, 8), torch.nn.BatchNorm1d(8), linear(8, 1)).eval()
    source = library.collect(first, [small_models.table(100)])
    adapter = library.Adapter(second, library.SSA(k=2), source, head="2", allow_mismatch=True)
    content = recorder_over(second, adapter, small_models.table(60, seed=3).split(20)).record({}, online=False)
    assert len(content["stream"]["loss"]) == 3


# --- streams of unusual batches ------------------------------------------------------------------


def test_the_sample_is_bounded_while_all_rows_are_counted(monkeypatch):
    monkeypatch.setattr(recorder_module, "MOST_ROWS", 50)
    model = small_models.mlp()
    adapter = library.Adapter(model, library.BNAdapt())
    batches = small_models.table(300).split(60)
    content = recorder_over(model, adapter, batches, [model(x).detach() for x in batches]).record({}, online=False)
    assert content["sample"] == {"rows": 50, "seen": 300}
    assert len(content["predictions"]["before"]["labels"]) == 50
    assert content["stream"]["sizes"] == [60] * 5


def test_large_inputs_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(recorder_module, "MOST_BYTES", 10 * 5 * 4)  # ten rows of five floats
    model = small_models.mlp()
    recorder = recorder_over(model, library.Adapter(model, library.BNAdapt()), [small_models.table(40)])
    assert recorder.record({}, online=False)["sample"] == {"rows": 10, "seen": 40}


def test_the_model_is_not_modified():
    model = small_models.mlp()
    source = library.collect(model, [small_models.table(100)])
    before = small_models.model_snapshot(model)
    adapter = library.Adapter(model, library.SSA(k=3), source)
    recorder_over(model, adapter, small_models.table(80, shift=1.0).split(40)).record({}, online=False)
    small_models.assert_unchanged(before, model)


def test_recording_does_not_change_the_adaptation():
    model = small_models.cnn()
    source = library.collect(model, [small_models.images(60)])
    watched, alone = (library.Adapter(model, library.SSA(k=3, lr=0.01), source) for _ in range(2))
    batches = small_models.images(60, shift=0.3, seed=4).split(20)
    recorder = recorder_over(model, watched, batches)
    list(alone.run(batches))
    recorder.record({}, online=False)
    for name, value in alone.export().state_dict().items():
        assert torch.equal(value, watched.export().state_dict()[name]), name


def test_a_diverged_run_names_the_unmeasured_parts():
    model = small_models.mlp()
    source = library.collect(model, [small_models.table(100)])
    adapter = library.Adapter(model, library.SSA(k=3, lr=1e30), source)
    batches = small_models.table(80, shift=1.0).split(20)
    content = recorder_over(model, adapter, batches, [model(x).detach() for x in batches]).record({}, online=False)
    assert "in the features 'after', found 80 rows, 80 of them not finite" in content["unmeasured"]
    assert content.keys() & OF_FEATURES == OF_FEATURES - {"shift", "outputs"}
    assert content["gain"] == {"rows": 80, "mean": None, "low": None, "high": None}
    json.dumps(content, allow_nan=False)


def test_without_complete_rows_there_is_no_sample():
    model = small_models.mlp()
    adapter = library.Adapter(model, library.BNAdapt())
    content = recorder_over(model, adapter, [torch.full((5, 5), torch.nan)]).record({}, online=False)
    assert "sample" not in content
    assert content["stream"]["learned"] == [False]


def test_inputs_of_one_dimension():
    """A model with one number per sample works without a record, and so it does with one."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Unflatten(0, (-1, 1)), torch.nn.Linear(1, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
    ).eval()
    adapter = library.Adapter(model, library.BNAdapt())
    assert recorder_over(model, adapter, [torch.randn(10)]).record({}, online=False)["sample"]["rows"] == 10


def test_an_empty_batch_is_recorded():
    """Adaptation without a record accepts an empty batch, and so it does with one."""
    model = small_models.mlp()
    source = library.collect(model, [small_models.table(100)])
    adapter = library.Adapter(model, library.SSA(k=3), source)
    content = recorder_over(model, adapter, [small_models.table(20), torch.empty(0, 5), small_models.table(20)]).record(
        {}, online=False
    )
    assert content["stream"]["sizes"] == [20, 0, 20]


# --- how sure the gain is ------------------------------------------------------------------------


def squared_errors(rows, outputs, seed, scale):
    draw = np.random.default_rng(seed)
    labels = draw.normal(size=(rows, outputs))
    return labels, *((draw.normal(scale=size, size=labels.shape)) for size in scale)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_gain_is_the_difference_of_r2(outputs):
    labels, wide, narrow = squared_errors(90, outputs, 0, (0.8, 0.5))
    expected = r2_score(labels, labels + narrow) - r2_score(labels, labels + wide)
    assert gain_interval(wide**2, narrow**2, labels)["mean"] == pytest.approx(expected)
    assert gain_interval(narrow**2, wide**2, labels)["mean"] == pytest.approx(-expected)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_interval_agrees_with_a_bootstrap_of_scikit_learn(outputs):
    labels, wide, narrow = squared_errors(120, outputs, 1, (0.8, 0.6))
    draw = np.random.default_rng(99)
    gains = []
    for _ in range(1000):
        rows = draw.integers(120, size=120)
        y = labels[rows]
        gains.append(r2_score(y, y + narrow[rows]) - r2_score(y, y + wide[rows]))
    found = gain_interval(wide**2, narrow**2, labels)
    # 1000 draws determine the end of an interval to about 0.1 standard deviations; allow four times that.
    assert [found["low"], found["high"]] == pytest.approx(np.quantile(gains, [0.025, 0.975]), abs=0.4 * np.std(gains))
    assert found["low"] < found["mean"] < found["high"]


def test_the_interval_of_many_samples_is_the_normal_one():
    """With labels ±1 their spread hardly varies, so the gain is a mean and its interval ±1.96 σ/√N."""
    rows = 2000
    labels = np.tile([[1.0], [-1.0]], (rows // 2, 1))
    before = np.random.default_rng(3).exponential(size=(rows, 1))
    found = gain_interval(before, np.zeros_like(before), labels)
    half = 1.96 * before.std() / rows**0.5
    assert found["mean"] == pytest.approx(before.mean())
    assert [found["low"], found["high"]] == pytest.approx([before.mean() - half, before.mean() + half], abs=0.25 * half)


def test_identical_models_have_a_gain_of_exactly_zero():
    labels, error, _ = squared_errors(30, 1, 0, (1.0, 1.0))
    assert gain_interval(error**2, error**2, labels) == {"mean": 0, "low": 0, "high": 0}


def test_the_interval_depends_on_the_seed():
    labels, wide, narrow = squared_errors(40, 1, 0, (0.8, 0.5))
    one, same, other = (gain_interval(wide**2, narrow**2, labels, seed=seed) for seed in (0, 0, 1))
    assert one == same != other


@pytest.mark.parametrize("spoilt", ["labels", "after"])
def test_undefined_values_are_none(spoilt):
    labels, wide, narrow = squared_errors(20, 1, 0, (0.8, 0.5))
    if spoilt == "labels":
        labels[:] = 1.0
    else:
        narrow[3] = np.nan
    assert gain_interval(wide**2, narrow**2, labels) == {"mean": None, "low": None, "high": None}
