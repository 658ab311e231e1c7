import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import mean_absolute_error, r2_score

import regtta as library
from helpers.cli_workspace import MODEL, extract_inputs, labels_of, library_model
from regtta.cli.adapt import AdaptOptions, adapt_model
from regtta.cli.adapt_options import PrecisionName, Protocol, ServedModel
from regtta.errors import BatchError, ModelError, OptionError

SETTINGS = ("k=3", "lr=0.05")
SETS = ["--set", "k=3", "--set", "lr=0.05"]
ADAPT = ["adapt", *MODEL, "--stats", "stats.safetensors", *SETS, "--batch-size", "16"]


def options(data: str = "target.csv", *, target: str | None = None, **others: object) -> AdaptOptions:
    chosen: dict[str, object] = {
        "weights": Path("weights.safetensors"),
        "stats": Path("stats.safetensors"),
        "settings": SETTINGS,
        "predictions": Path("p.csv"),
    }
    size = None if ":" in data else 16
    return AdaptOptions(model="mymodel:make", data=data, target=target, batch_size=size, **chosen | others)


def adapter_of(statistics: Path) -> library.Adapter:
    source = library.SourceStatistics.load(statistics)
    return library.Adapter(library_model(), library.SSA(k=3, lr=0.05), source)


def written(name: str = "p.csv") -> torch.Tensor:
    table = pd.read_parquet(name) if name.endswith("parquet") else pd.read_csv(name)
    return torch.tensor(table["prediction"].to_numpy(np.float32))


def test_online_predictions_are_those_of_the_librarys_steps(workspace: Path, statistics: Path):
    report = adapt_model(options(target="y"))
    steps = list(adapter_of(statistics).run(extract_inputs(workspace / "target.csv").split(16)))
    torch.testing.assert_close(written(), torch.cat([s.predictions for s in steps]).squeeze(1))
    assert (report.samples, report.learned, report.refused) == (70, 5, {})


def test_offline_predictions_are_those_of_the_adapted_model(workspace: Path, statistics: Path):
    adapt_model(options(target="y", protocol=Protocol.offline))
    inputs, adapter = extract_inputs(workspace / "target.csv"), adapter_of(statistics)
    online = torch.cat([step.predictions for step in adapter.run(inputs.split(16))]).squeeze(1)
    offline = adapter.predict(inputs).squeeze(1)
    torch.testing.assert_close(written(), offline)
    assert (online - offline).abs().max() > 0.01


@pytest.mark.parametrize("protocol", list(Protocol))
def test_every_format_gives_the_same_predictions(workspace: Path, statistics: Path, protocol):
    found = []
    for data in ("target.csv", "target.csv.gz", "target.parquet", "target.npz"):
        for out in ("p.csv", "p.parquet"):
            adapt_model(options(data, target="y", protocol=protocol, predictions=Path(out), force=True))
            found.append(written(out))
    assert len(found) == 8
    assert all(torch.equal(values, found[0]) for values in found[1:])


def test_predictions_of_a_loader_are_those_of_its_batches(workspace: Path, statistics: Path):
    import mymodel

    report = adapt_model(options("mymodel:generator", target="1", protocol=Protocol.offline))
    adapter = adapter_of(statistics)
    for x, _ in mymodel.batches:
        adapter.adapt(x)
    torch.testing.assert_close(written(), adapter.predict(mymodel.table).squeeze(1))
    assert pd.read_csv("p.csv")["target"].to_numpy() == pytest.approx(mymodel.labels.numpy())
    assert report.samples == 70


def test_an_iterator_is_accepted_online(workspace: Path, statistics: Path):
    assert adapt_model(options("mymodel:once")).samples == 70


def test_an_iterator_is_rejected_offline(workspace: Path, statistics: Path):
    with pytest.raises(OptionError, match="mymodel:once is an iterator, exhausted after one"):
        adapt_model(options("mymodel:once", protocol=Protocol.offline))
    assert not Path("p.csv").exists()


def test_a_loader_with_fewer_rows_in_the_second_pass_is_rejected(workspace: Path, statistics: Path):
    (workspace / "shrinking.py").write_text(
        "import torch\nleft = [torch.randn(8, 3), torch.randn(8, 3)]\n"
        "def load():\n    batches = list(left)\n    left.pop()\n    return batches\n"
    )
    with pytest.raises(BatchError, match="gave 16 rows on its first pass and 8 on its second"):
        adapt_model(options("shrinking:load", protocol=Protocol.offline))
    assert not Path("p.csv").exists()


@pytest.mark.parametrize("protocol", list(Protocol))
def test_shuffled_rows_are_written_in_the_original_order(workspace: Path, statistics: Path, protocol):
    adapt_model(options(target="y", shuffle_seed=4, protocol=protocol))
    inputs, adapter = extract_inputs(workspace / "target.csv"), adapter_of(statistics)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(4))
    steps = torch.cat([step.predictions for step in adapter.run(inputs[order].split(16))]).squeeze(1)
    expected = adapter.predict(inputs).squeeze(1)
    if protocol is Protocol.online:
        expected = torch.empty_like(steps)
        expected[order] = steps
    torch.testing.assert_close(written(), expected)
    assert pd.read_csv("p.csv")["y"].to_numpy() == pytest.approx(labels_of(workspace / "target.csv"))


def test_scores_before_and_after(workspace: Path, statistics: Path):
    report = adapt_model(options(target="y", protocol=Protocol.offline))
    labels, inputs = labels_of(workspace / "target.csv"), extract_inputs(workspace / "target.csv")
    unadapted = library_model()(inputs).detach().squeeze(1).double().numpy()
    adapted = written().double().numpy()
    before, after = report.scores
    for scores, predictions in ((before, unadapted), (after, adapted)):
        assert scores.r2 == pytest.approx(r2_score(labels, predictions), abs=1e-5)
        assert scores.mae == pytest.approx(mean_absolute_error(labels, predictions), abs=1e-5)
        assert scores.rmse == pytest.approx(np.sqrt(np.mean((labels - predictions) ** 2)), abs=1e-5)
        assert scores.pearson == pytest.approx(np.corrcoef(labels, predictions)[0, 1], abs=1e-5)
    assert before.r2 != after.r2


def test_labels_change_no_prediction(workspace: Path, statistics: Path):
    adapt_model(options(target="y"))
    table = pd.read_csv("target.csv")
    table.assign(y=-1000 * table["y"]).to_csv("other.csv", index=False)
    adapt_model(options("other.csv", target="y", predictions=Path("q.csv")))
    assert torch.equal(written("p.csv"), written("q.csv"))


def test_missing_values_keep_their_row_and_stay_out_of_the_scores(workspace: Path, statistics: Path):
    table = pd.read_csv("target.csv")
    table.loc[3, "a"] = np.nan
    table.loc[40, "y"] = np.nan
    table.to_csv("holes.csv", index=False)
    report = adapt_model(options("holes.csv", target="y"))
    assert np.flatnonzero(written().isnan().numpy()).tolist() == [3]
    assert (report.samples, report.not_finite, report.unscored) == (70, 1, 2)
    assert (report.learned, report.refused, report.excluded) == (5, {}, 1)
    whole = table.dropna().index.to_numpy()
    expected = r2_score(table["y"][whole], written().double().numpy()[whole])
    assert report.scores[1].r2 == pytest.approx(expected, abs=1e-5)


def test_without_scorable_rows_there_are_no_scores(workspace: Path, statistics: Path):
    pd.read_csv("target.csv").assign(y=np.nan).to_csv("unlabelled.csv", index=False)
    assert adapt_model(options("unlabelled.csv", target="y")).scores is None


def test_adapted_weights_are_those_of_the_exported_model(workspace: Path, statistics: Path):
    adapt_model(options(target="y", predictions=None, adapted_weights=Path("w.safetensors")))
    inputs, adapter = extract_inputs(workspace / "target.csv"), adapter_of(statistics)
    list(adapter.run(inputs.split(16)))
    model = library_model()
    before = model(inputs)
    model.load_state_dict(load_file("w.safetensors"))
    torch.testing.assert_close(model(inputs), adapter.export()(inputs))
    assert not torch.allclose(model(inputs), before, atol=1e-2)


def test_diagnostics_are_those_of_the_steps(workspace: Path, statistics: Path):
    adapt_model(options(target="y", predictions=None, diagnostics=Path("d.jsonl")))
    found = [json.loads(line) for line in Path("d.jsonl").read_text().splitlines()]
    steps = list(adapter_of(statistics).run(extract_inputs(workspace / "target.csv").split(16)))
    assert [line["index"] for line in found] == [0, 1, 2, 3, 4]
    assert [line["samples"] for line in found] == [16, 16, 16, 16, 6]
    for name in ("loss", "gradient_norm", "displacement"):
        expected = [getattr(step.diagnostics, name) for step in steps]
        assert [line[name] for line in found] == pytest.approx(expected, rel=1e-5)


def test_several_outputs_and_labels(workspace: Path, regtta):
    table = pd.read_csv("target.csv").assign(z=1.5)
    table.to_csv("two.csv", index=False)
    result = regtta(
        "adapt", "--model", "mymodel:make_two_outputs", "--method", "bn_adapt", "--data", "two.csv",
        "--target", "y,z", "--predictions", "p.csv",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = pd.read_csv("p.csv")
    assert list(found.columns) == ["prediction_0", "prediction_1", "y", "z"]
    assert found["z"].eq(1.5).all()


def test_a_method_without_statistics(workspace: Path):
    report = adapt_model(options(target="y", stats=None, method="source", settings=()))
    torch.testing.assert_close(written(), library_model()(extract_inputs(Path("target.csv"))).squeeze(1))
    assert (report.learned, report.refused) == (0, {"source changes nothing": 5})


def test_mismatched_statistics_are_rejected_unless_allowed(workspace: Path, statistics: Path, regtta, refusal):
    other = ["adapt", "--model", "mymodel:make", "--stats", "stats.safetensors", *SETS, "--data",
             "target.csv", "--target", "y", "--predictions", "p.csv"]  # fmt: skip
    assert "--allow-mismatch skips this check" in refusal(*other)
    assert regtta(*other, "--allow-mismatch").exit_code == 0


def test_nothing_is_overwritten_without_force(workspace: Path, statistics: Path, regtta, refusal):
    outputs = {"--predictions": "p.csv", "--adapted-weights": "w.safetensors", "--diagnostics": "d.jsonl"}
    given = [word for pair in outputs.items() for word in pair]
    for blocked in outputs.values():
        Path(blocked).write_text("mine")
        line = refusal(*ADAPT, "--data", "target.csv", "--columns", "a,b,c", *given)
        assert f"{blocked} exists" in line
        assert "--force" in line
        assert Path(blocked).read_text() == "mine"
        assert [name for name in outputs.values() if Path(name).exists()] == [blocked]
        Path(blocked).unlink()
    for name in outputs.values():
        Path(name).write_text("mine")
    assert regtta(*ADAPT, "--data", "target.csv", "--columns", "a,b,c", *given, "--force").exit_code == 0
    assert all(not Path(name).read_bytes().startswith(b"mine") for name in outputs.values())


def test_a_failure_midway_leaves_no_files(workspace: Path, statistics: Path):
    before = sorted(os.listdir())  # noqa: PTH208
    with pytest.raises(ModelError, match="the disk is gone"):
        adapt_model(options("mymodel:breaks_off", diagnostics=Path("d.jsonl")))
    assert sorted(os.listdir()) == before  # noqa: PTH208


def test_biases_are_updated_on_request(workspace: Path, statistics: Path, regtta):
    regtta(
        *ADAPT, "--data", "target.csv", "--target", "y", "--set", "trainable=bias", "--adapted-weights", "w.safetensors"
    )
    before, after = (load_file(name) for name in ("weights.safetensors", "w.safetensors"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"0.bias", "1.bias"} <= changed
    assert not changed & {"0.weight", "1.weight", "3.weight", "3.bias"}


def test_a_model_without_normalisation_layers_adapts_with_a_warning(workspace: Path, regtta, caplog):
    model = ["--model", "mymodel:make_plain"]
    regtta("collect", *model, "--data", "source.csv", "--target", "y", "--out", "plain.safetensors")
    given = ["--stats", "plain.safetensors", "--data", "target.csv", "--target", "y", "--set", "k=3"]
    regtta("adapt", *model, *given, "--predictions", "p.csv")
    assert len([text for text in caplog.messages if "its biases are updated instead" in text]) == 1
    assert Path("p.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Pass at least one of --predictions, --adapted-weights, --diagnostics"),
        (["--predictions", "p.txt"], "to end in .csv or .parquet"),
        (["--adapted-weights", "w.pt"], "to end in .safetensors"),
        (["--predictions", "no/p.csv"], "no folder no"),
        (["--predictions", "target.csv", "--force"], "is also an input"),
        (["--predictions", "p.csv", "--method", "sas"], "Did you mean 'ssa'?"),
        (["--predictions", "p.csv", "--set", "kk=1"], "Did you mean 'k'?"),
        (["--predictions", "p.csv", "--set", "k"], "Expected key=value, found 'k'"),
        (["--predictions", "p.csv", "--set", "lr=fast"], "Cannot read lr='fast': expected float"),
        (["--predictions", "p.csv", "--set", "k=100", "--set", "clip=no"], "--set k=auto takes the rank"),
        (["--predictions", "p.csv", "--stats", "none.safetensors"], "no file none.safetensors"),
        (["--predictions", "p.csv", "--stats", "weights.safetensors"], "Make one with regtta collect"),
        (["--predictions", "p.csv", "--head", "0"], "Leave --head out"),
        (["--predictions", "p.csv", "--weights", "none.pt"], "no file none.pt"),
    ],
)
def test_mistakes_are_one_line_each(workspace: Path, statistics: Path, refusal, arguments, words):
    assert words in refusal(*ADAPT, "--data", "target.csv", "--target", "y", *arguments)
    assert not Path("p.csv").exists()


def test_inputs_that_the_model_cannot_take_are_described(workspace: Path, refusal):
    line = refusal("adapt", *MODEL, "--method", "bn_adapt", "--data", "target.csv", "--predictions", "p.csv")
    assert "batch 0, of shape (64, 4): RuntimeError" in line
    assert "4 columns were used as inputs: a, b, c, y. Select others with --columns" in line
    assert not Path("p.csv").exists()


def test_missing_required_statistics_are_an_error(workspace: Path, refusal):
    line = refusal("adapt", *MODEL, "--data", "target.csv", "--predictions", "p.csv")
    assert "ssa needs source statistics" in line
    assert "regtta collect, and pass --stats FILE" in line


def test_shuffle_seed_does_not_apply_to_loaders(workspace: Path, statistics: Path):
    with pytest.raises(OptionError, match="--shuffle-seed does not apply to a loader"):
        adapt_model(options("mymodel:batches", shuffle_seed=1))


def test_data_without_rows_is_rejected(workspace: Path, statistics: Path):
    Path("empty.csv").write_text("a,b,c\n")
    with pytest.raises(BatchError, match="empty.csv has no rows: there is nothing to adapt to"):
        adapt_model(options("empty.csv"))
    assert not Path("p.csv").exists()


def test_labels_of_another_shape_are_rejected(workspace: Path, statistics: Path):
    pd.read_csv("target.csv").assign(z=0.0).to_csv("two.csv", index=False)
    with pytest.raises(BatchError, match=r"do not fit targets of shape \(16, 2\)"):
        adapt_model(options("two.csv", target="y,z"))


def test_the_oracle_requires_labels_and_learns_from_them(workspace, regtta):
    line = ["adapt", *MODEL, "--data", "target.csv", "--columns", "a,b,c", "--method", "oracle", "--set", "lr=0.01"]
    asked = regtta(*line, "--predictions", "p.csv")
    assert asked.exit_code == 2
    assert "oracle learns from labels. Name them with --target." in asked.stderr
    done = regtta(*line, "--target", "y", "--predictions", "p.csv", "--protocol", "offline")
    assert done.exit_code == 0, done.stderr
    assert "learns from target labels" in done.stderr


def test_state_other_than_tensors_cannot_be_written(workspace: Path):
    (workspace / "stateful.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def get_extra_state(self): return {'a': 1}\n"
        "    def set_extra_state(self, state): pass\n"
        "def make(): return Net(3, 1)\n"
    )
    asked = AdaptOptions(
        model="stateful:make",
        data="target.csv",
        target="y",
        method="source",
        adapted_weights=Path("w.safetensors"),
    )
    with pytest.raises(ModelError, match="--adapted-weights stores tensors only, but '_extra_state'"):
        adapt_model(asked)


def test_progress_is_reported(workspace: Path, statistics: Path):
    reported: list[tuple[int, int | None]] = []
    adapt_model(options("target.parquet", target="y"), lambda seen, total: reported.append((seen, total)))
    assert reported == [(16, 70), (32, 70), (48, 70), (64, 70), (70, 70)]


def test_precision_and_fast_set_the_execution(workspace: Path, statistics: Path):
    assert options().execution == library.Execution()
    assert options(precision=PrecisionName.tf32).execution == library.Execution(precision="tf32")
    assert options(fast=True).execution == library.FAST
    assert options(fast=True, precision=PrecisionName.tf32).execution.precision == "tf32"
    adapt_model(options(target="y", predictions=Path("plain.csv")))
    adapt_model(options(target="y", predictions=Path("rounded.csv"), precision=PrecisionName.bfloat16))
    plain, rounded = written("plain.csv"), written("rounded.csv")
    assert not torch.equal(plain, rounded)
    torch.testing.assert_close(rounded, plain, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("protocol", list(Protocol))
def test_shadow_mode_writes_the_predictions_of_the_source_model_and_the_adapted_weights(
    workspace: Path, statistics: Path, protocol
):
    shadow = {"serve": ServedModel.source, "adapted_weights": Path("shadow.safetensors")}
    report = adapt_model(options(target="y", protocol=protocol, **shadow))
    adapt_model(options(target="y", predictions=Path("q.csv"), adapted_weights=Path("adapted.safetensors")))
    with torch.no_grad():
        expected = library_model()(extract_inputs(workspace / "target.csv")).squeeze(1)
    torch.testing.assert_close(written(), expected)
    assert report.learned == 5
    assert report.scores[0].r2 == report.scores[1].r2
    shadowed, adapted = load_file("shadow.safetensors"), load_file("adapted.safetensors")
    assert all(torch.equal(shadowed[name], value) for name, value in adapted.items())


def test_the_record_of_shadow_mode_is_that_of_the_adapted_model(workspace: Path, statistics: Path):
    found = []
    for serve, protocol in ((ServedModel.source, Protocol.online), (ServedModel.adapted, Protocol.offline)):
        record = Path(f"{serve}.json")
        adapt_model(options(target="y", predictions=None, serve=serve, protocol=protocol, record=record))
        content = json.loads(record.read_text(encoding="utf-8"))
        content["stream"].pop("online_r2")  # of the predictions that were served
        found.append({name: content[name] for name in content if name not in ("command", "scores", "protocol")})
    differing = [name for name in found[1] if found[0].get(name) != found[1][name]]
    assert differing == []
