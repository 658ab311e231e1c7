"""Study of models without normalisation layers: readers, shifts, candidates, and the committed page."""

from pathlib import Path

import pytest
import torch
from torch import nn

import regtta
from benchmarks.no_normalisation.__main__ import main
from benchmarks.no_normalisation.candidates import Candidate, candidates, layer_positions, score_candidate
from benchmarks.no_normalisation.page import PAGE, RUNS, Scores, defaults_table, make_page
from benchmarks.no_normalisation.shifts import Shift, make_dataset, shifts
from benchmarks.no_normalisation.source_models import Recurrent, SourceModels, make_network
from regtta_bench.data import Domain
from regtta_bench.sweep.store import RunStore

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "no_normalisation"


def test_a_missing_file_is_an_error(tmp_path, capsys):
    assert main(["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--only", "wine"]) == 1
    assert "winequality-white.csv" in capsys.readouterr().err


def rows(count):
    generator = torch.Generator().manual_seed(count)
    inputs = torch.randn(count, 7, generator=generator, dtype=torch.float64) * 3 + 5
    inputs[:, 1] = 2.0
    return Domain(inputs, inputs[:, :1] * 2)


def test_inputs_are_scaled_by_the_training_rows_and_constant_columns_dropped(tmp_path):
    made = make_dataset(Shift("rows", "mlp", lambda _: rows(300), lambda _: rows(100)), tmp_path, seed=0)
    assert (len(made.train), len(made.validation), len(made.target)) == (240, 60, 100)
    assert made.train.inputs.shape[1] == 6
    torch.testing.assert_close(made.train.inputs.mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(made.train.inputs.std(0, correction=0), torch.ones(6))


def test_a_drift_changes_every_third_column_of_a_held_out_third(tmp_path):
    made = make_dataset(Shift("rows", "mlp", lambda _: rows(300)), tmp_path, seed=0)
    assert (len(made.train), len(made.target)) == (160, 100)
    moved = made.target.inputs.mean(0).abs() > 0.5
    assert moved.tolist() == [True, False, True, False, False, True]  # columns 0, 3 and 6; 1 is constant


@pytest.mark.parametrize("network", ["mlp", "wide mlp", "lstm", "gru", "cnn", "wide cnn"])
def test_networks_have_biases_and_no_normalisation_layer(network):
    names = [name for name, _ in make_network(network, 5).named_modules() if "norm" in name.lower()]
    assert not names


def test_layers_are_found_by_position():
    model = Recurrent(nn.GRU, 3)
    names = [name for name, _ in model.named_parameters()]
    first, last = (layer_positions(model, first=value) for value in (True, False))
    assert {names[i] for i in first} == {f"cell.{n}_l0" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    assert {names[i] for i in last} == {f"cell.{n}_l1" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}


@pytest.mark.parametrize("what", ["bias", "extractor", "first layer", "last layer"])
def test_a_candidate_changes_only_its_parameters(what):
    torch.manual_seed(0)
    model = make_network("mlp", 4)
    source = regtta.collect(model, torch.randn(300, 4).split(50))
    adapter = regtta.Adapter(model, Candidate(what, 1e-2, 3).method(model), source)
    assert adapter.adapt(torch.randn(32, 4) + 1).adapted
    after = dict(adapter.export().named_parameters())
    changed = {name for name, before in model.named_parameters() if not torch.equal(before, after[name])}
    places = {"first layer": "0", "last layer": "6"}
    expected = {
        name
        for name in after
        if not name.startswith("8.")
        and (what != "bias" or name.endswith("bias"))
        and name.startswith(places.get(what, ""))
    }
    assert changed == expected


def test_the_source_model_is_scored_unchanged():
    torch.manual_seed(0)
    model = make_network("mlp", 4)
    target = Domain(torch.randn(130, 4), torch.randn(130, 1))
    source = regtta.collect(model, torch.randn(300, 4).split(50))
    scores = score_candidate(Candidate(), model, source, target)
    assert scores["online"] == scores["offline"]
    assert (scores["batches"], scores["learned"]) == (3, 0)


def test_a_source_model_is_trained_once_for_the_same_data(tmp_path):
    made = [make_dataset(Shift("rows", "mlp", lambda _: rows(60), lambda _: rows(20)), tmp_path, s) for s in (0, 0, 1)]
    models = SourceModels()
    first, again, other = (models.get("mlp", dataset, seed=0) for dataset in made)
    assert first is again
    assert first is not other


def record(candidate, seed, online, offline, shift="mlp: a"):
    result = {"validation": 0.9, "online": online, "offline": offline}
    return {"specification": {"shift": shift, "candidate": candidate, "seed": seed}, "result": result}


def test_candidates_are_compared_with_the_same_source_model():
    name = "bias, lr 0.001, k=auto"
    runs = [
        record("Source", 0, 0.5, 0.5),
        record("Source", 1, -9.0, -9.0),
        record(name, 0, 0.6, 0.4),
        record(name, 1, -8.0, -0.5),
        record("Source", 0, 0.2, 0.2, "gru: b"),
        record(name, 0, 0.1, 0.25, "gru: b"),
    ]
    scores = Scores(runs)
    found = scores.compare("bias, lr 0.001, k=100", scores.shifts)
    assert found.offline == pytest.approx(((-0.1 + 0.5) / 2 + 0.05) / 2)
    assert (found.harm, found.harmed, found.harmful) == (pytest.approx(-0.1), "gru: b", 1)
    assert found.single_harm == pytest.approx(-0.1)
    page = make_page(runs)
    assert "| bias | +0.200, +0.050 (−0.100), 0 | +0.050, −0.100 (−0.100), 1 |" in page


def test_a_page_without_runs():
    assert "No runs yet" in make_page([])


def test_the_committed_page_is_what_its_runs_give():
    store = RunStore(RESULTS / RUNS)
    assert defaults_table(Scores(store)) in (ROOT / "docs" / "adapting.md").read_text(encoding="utf-8")
    assert (RESULTS / PAGE).read_text(encoding="utf-8") == make_page(list(store))
    runs = {tuple(record["specification"][name] for name in ("shift", "candidate", "seed")) for record in store}
    assert runs == {(s.key, c.key, seed) for s in shifts() for c in candidates(s.network) for seed in range(3)}
