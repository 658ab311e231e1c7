"""Single runs, compared with the library used by hand and with scikit-learn."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score

import regtta
from regtta.guards import DEFAULT, Gate
from regtta_bench.data.loading import DataLocation
from regtta_bench.demo.demo_model import DigitTraining
from regtta_bench.stress.stress_runner import StressRunnerConfig, draw_run_stream, evaluate_stream, slice_scores
from regtta_bench.stress.stress_settings import ADAPTATION_METHODS, GUARDS, DigitsSource, default_method
from regtta_bench.stress.stress_specs import StressSpec
from regtta_bench.sweep.runner import RunnerConfig
from regtta_bench.sweep.store import compute_key

TINY = DigitsSource(5, source_digits=200, target_digits=150, training=DigitTraining(epochs=1))


def spec(method_name="ssa", kind="iid", part="noisy", guards="plain", size=64, length=0):
    return StressSpec("demo", TINY, kind, part, method_name, default_method(method_name), guards, size, length)


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    reported = []
    made = StressRunnerConfig(RunnerConfig(DataLocation(folder), folder)).make_worker(
        lambda *news: reported.append(news)
    )
    made.prepare([spec("ssa"), spec("feature_restoration"), spec("prototype")])
    assert reported == [("demo-digits-5", 1, 1)]
    return made


@pytest.fixture(scope="module")
def testbed(worker):
    return worker._testbed_of(spec())


@pytest.mark.parametrize("kind", ["iid", "back"])
def test_scores_agree_with_the_library_used_by_hand(worker, testbed, kind):
    one = spec(kind=kind)
    stream = draw_run_stream(one, testbed)
    method = regtta.SSA.from_paper(clip=True)
    adapter = regtta.Adapter(testbed.model, method, testbed.statistics(method), guards=DEFAULT)
    inputs = torch.cat(list(stream.batches(1000)))
    steps = [adapter.adapt(inputs[begin : begin + 64]) for begin in range(0, 150, 64)]
    predictions = torch.cat([step.predictions for step in steps])[:, 0]
    found = worker.run(one)
    assert found["r2"] == pytest.approx(r2_score(stream.targets, predictions), abs=1e-6)
    with torch.no_grad():
        assert found["source_r2"] == pytest.approx(r2_score(stream.targets, testbed.model(inputs)[:, 0]), abs=1e-5)
    assert (found["batches"], found["learned"], found["first_learned"]) == (3, 3, 1)
    assert found["excluded"] == 0
    assert found["slices"] == slice_scores(predictions, stream.targets)
    assert (found["refused"], found["returned"], found["diverged"]) == ({}, {}, "")


def test_the_source_model_scores_as_itself(worker):
    found = worker.run(spec("source", "sorted"))
    assert found["r2"] == pytest.approx(found["source_r2"], abs=1e-6)
    assert (found["learned"], found["first_learned"]) == (0, None)


@pytest.mark.parametrize("method_name", [name for name in ADAPTATION_METHODS if name != "variance_minimization"])
@pytest.mark.parametrize("guards", ["plain", "safe"])
def test_every_method_runs_with_all_guards_and_fits_a_line(worker, method_name, guards):
    one = spec(method_name, "mixed", "", guards, size=50, length=100)
    found = worker.run(one)
    line = json.dumps(
        {"key": compute_key(one.to_dict()), "specification": one.to_dict(), "result": found}, allow_nan=False
    )
    assert len(line) < 2000
    assert found["learned"] + sum(found["refused"].values()) == found["batches"] == 2


def test_one_stream_serves_all_methods_guards_and_batch_sizes(testbed):
    first, other = (
        torch.cat(list(draw_run_stream(one, testbed).batches(64)))
        for one in (spec("ssa", "bursts"), spec("rsd", "bursts", guards="safe", size=1))
    )
    assert torch.equal(first, other)
    assert not torch.equal(first, torch.cat(list(draw_run_stream(spec(kind="iid"), testbed).batches(64))))


def test_no_digit_comes_both_clean_and_degraded(testbed):
    pool = testbed.pool
    stream = draw_run_stream(spec(kind="alternating"), testbed)
    labels = pool.clean.targets[stream.rows]
    assert torch.equal(labels, stream.targets)
    assert len(set(stream.rows.tolist())) == 150


def test_the_gate_is_tried_on_a_stream_longer_than_the_data(worker, testbed):
    one = spec("ssa", "redrawn", "", "gate", length=64 * 5)
    found = worker.run(one)
    assert (found["batches"], found["samples"]) == (5, 320) != (5, len(testbed.pool.clean))
    assert found["learned"] + sum(found["refused"].values()) == 5
    assert set(GUARDS["gate"]) - set(GUARDS["plain"]) == {Gate()}


def test_predictions_that_are_not_finite_count_as_diverged(testbed):
    class Breaking(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model, self.head = model, model.head

        def forward(self, images):
            return self.model(images) * torch.nan

    stream = draw_run_stream(spec(), testbed)
    found = evaluate_stream(
        regtta.Adapter(Breaking(testbed.model), regtta.NoAdaptation()), stream, testbed, batch_size=64
    )
    assert (found["r2"], found["slices"], found["diverged"]) == (None, [None] * 20, "predictions")


def test_slices_are_scored_against_the_labels_of_the_whole_stream():
    draws = np.random.default_rng(0)
    labels, predictions = draws.normal(size=(2, 203, 3)) * [1, 2, 3] + 5
    found = slice_scores(torch.tensor(predictions), torch.tensor(labels))
    parts = np.array_split(np.arange(203), 20)
    by_hand = [
        np.mean([1 - np.mean((predictions[p, o] - labels[p, o]) ** 2) / labels[:, o].var() for o in range(3)])
        for p in parts
    ]
    assert found == pytest.approx(by_hand, abs=1e-5)
    sizes = [len(part) for part in parts]
    assert np.average(found, weights=sizes) == pytest.approx(r2_score(labels, predictions), abs=1e-5)


def test_a_stream_shorter_than_the_slices_has_fewer():
    assert len(slice_scores(torch.zeros(3, 1), torch.tensor([[0.0], [1.0], [2.0]]))) == 3
