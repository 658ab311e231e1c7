"""Tests of every case at its smallest size; times are not checked."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import regtta
from benchmarks.speed import subprocesses
from benchmarks.speed.bench import QUICK, Bench
from benchmarks.speed.cases import processes
from benchmarks.speed.cases.floor import BYTES, COPY, FLOOR, OPERATIONS, PRODUCT, floor
from benchmarks.speed.cases.growth import rebatch
from benchmarks.speed.cases.precision import AGAIN, PRECISIONS, REFERENCE, precision, row_of, score
from benchmarks.speed.cases.profiling import profiling
from benchmarks.speed.cases.serving import GATED, serving
from benchmarks.speed.cases.step import DEFAULTS, STRICT, THROUGHOUT, regtta_row, step
from benchmarks.speed.catalogue import cases_for
from benchmarks.speed.record import read
from benchmarks.speed.rendering import page
from benchmarks.speed.run_cases import FILE, PAGE, run
from benchmarks.speed.subjects import DIGITS, MLP, RESNET26, TINY_IMAGES, TINY_MLP, make_testbed
from benchmarks.speed.variants import Stream, adapter_on, bare_forward, executions, set_layout
from helpers import preloaded_python
from helpers.published_datasets import write_california
from regtta.errors import MissingFileError, OptionError
from regtta.execution.modes import FAST, PLAIN, Execution

CPU = torch.device("cpu")


@pytest.fixture
def bench(tmp_path):
    return Bench(CPU, tmp_path, quick=True, effort=QUICK)


@pytest.fixture
def _preloaded_processes(monkeypatch):
    """Run the subprocesses of cases with torch imported already; test_subprocesses.py starts new interpreters."""

    def run_python_processes(calls):
        with ThreadPoolExecutor(len(calls)) as pool:
            done = list(pool.map(preloaded_python.run_python, calls))
        assert [run.returncode for run in done] == [0] * len(calls), [run.stderr for run in done]
        return [run.stdout for run in done]

    monkeypatch.setattr(subprocesses, "run_python_processes", run_python_processes)
    monkeypatch.setattr(processes, "run_python_processes", run_python_processes)


@pytest.mark.usefixtures("_preloaded_processes")
def test_quick_run_measures_every_case_and_writes_all_files(bench):
    assert run(bench) == []
    record = read(bench.out / FILE)
    assert list(record.findings) == list(cases_for(bench))
    assert (bench.out / PAGE).read_text() == page(record)
    rows = [row for found in record.findings.values() for table in found.tables for row in table.rows]
    assert all(row.ratios for row in rows), "a variant failed"
    assert not any(row.note for row in rows if row.name.startswith("regtta")), "steps were refused"
    assert all(row.milliseconds is row.per_second is row.peak_mib is None for row in rows), "absolute numbers of a CPU"
    curves = [curve for found in record.findings.values() for curve in found.curves]
    assert sum(len(points) for curve in curves for points in curve.lines.values()) == 5 * 4 + 2
    assert run(bench) == []


def test_full_run_has_the_same_kinds_of_cases_as_a_quick_run(bench):
    kinds = {name.partition("/")[0] for name in cases_for(bench)}
    assert kinds == {name.partition("/")[0] for name in cases_for(replace(bench, quick=False))}
    assert {"precision/svhn-subset", "precision/california"} < set(cases_for(replace(bench, data=bench.out)))


def test_gpu_cases_include_the_large_models(bench):
    on_gpu = set(cases_for(replace(bench, quick=False, device=torch.device("cuda"))))
    assert {
        "step/resnet50",
        "serving/resnet50",
        "collect/resnet50",
        "floor/resnet50",
        "growth/batch-resnet50",
    } <= on_gpu


def test_step_is_compared_in_every_execution_of_the_device(bench):
    (table,) = step(TINY_IMAGES, bench).tables
    assert [row.name for row in table.rows][:3] == [
        "straightforward",
        "regtta, float32",
        "regtta, float32, channels last",
    ]
    assert {name for row in table.rows for name in row.ratios} == {"straightforward"}
    titles = [execution.channels_last for execution in executions(torch.device("cuda"), images=False)]
    assert not any(titles)
    assert FAST in executions(torch.device("cuda"), images=True)


class PretendedGpu(Bench):
    """Bench on a CPU that behaves as on a GPU: it runs the same executions and reports absolute times."""

    @property
    def on_gpu(self):
        return True


@pytest.fixture
def pretended_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.speed.cases.floor.COPIED", 2**10)
    monkeypatch.setattr("benchmarks.speed.cases.floor.SIDE", 8)
    return PretendedGpu(CPU, tmp_path, quick=True, effort=QUICK)


def test_gpu_step_is_compared_with_strict_float32_and_torch_defaults(pretended_gpu):
    (table,) = step(TINY_MLP, pretended_gpu).tables
    assert [row.name for row in table.rows][:4] == [STRICT, DEFAULTS, THROUGHOUT, "regtta, float32"]
    assert all(row.ratios.keys() == {STRICT, DEFAULTS} for row in table.rows)
    for row in table.rows:
        assert row.per_second == pytest.approx(1000 * TINY_MLP.batch / row.milliseconds.median)


def test_gpu_floor_is_the_maximum_of_memory_and_compute_time(pretended_gpu):
    facts = {fact.name: fact.value for fact in floor(TINY_IMAGES, pretended_gpu).facts}
    moving, computing = facts["time to move the bytes"], facts["time to do the operations"]
    assert moving == pytest.approx(facts[BYTES] / facts[COPY])
    assert computing == pytest.approx(facts[OPERATIONS] / facts[PRODUCT])
    assert facts[FLOOR] == max(moving, computing)


def test_every_precision_has_a_row_in_the_step_table(pretended_gpu):
    for images in (True, False):
        rows = {regtta_row(execution) for execution in executions(torch.device("cuda"), images=images)} | {THROUGHOUT}
        assert {row_of(name, pretended_gpu, images=images) for name in PRECISIONS} <= rows


def test_serving_compares_gated_steps_that_refuse_every_batch(bench):
    (table,) = serving(TINY_MLP, bench).tables
    assert [row.name for row in table.rows] == [
        "bare forward, float32",
        "predict",
        "adapt behind a gate",
        "adapt, guarded by SAFE",
    ]
    assert not any(row.note for row in table.rows)


@pytest.mark.parametrize("subject", [MLP, DIGITS], ids=lambda subject: subject.name)
@pytest.mark.parametrize("guards", [GATED, regtta.SAFE], ids=["gate", "SAFE"])
def test_steady_streams_are_refused_and_shifted_streams_are_learned(subject, guards):
    testbed = make_testbed(subject, CPU)
    steady = Stream(adapter_on(testbed, guards=guards), testbed.steady, learning=False)
    shifted = Stream(adapter_on(testbed), testbed.shifted, learning=True)
    for _ in range(16):
        steady()
        shifted()
    assert (steady.learned, steady.remark()) == (0, "")
    assert (shifted.learned, shifted.remark()) == (16, "")


def test_unexpected_stream_behaviour_is_remarked():
    testbed = make_testbed(MLP, CPU)
    stream = Stream(adapter_on(testbed, guards=GATED), testbed.steady, learning=True)
    stream()
    stream()
    assert stream.remark() == "2 of 2 batches were refused"
    stream = Stream(adapter_on(testbed), testbed.shifted, learning=False)
    stream()
    assert stream.remark() == "1 of 1 batches were learned from"


def test_bare_forward_matches_the_model_and_does_not_modify_it():
    testbed = make_testbed(TINY_IMAGES, CPU)
    (batch, *_) = testbed.steady
    with torch.no_grad():
        expected = testbed.model(batch)
    torch.testing.assert_close(bare_forward(testbed.model, PLAIN, CPU)(batch), expected)
    laid = bare_forward(testbed.model, Execution(channels_last=True), CPU)(batch)
    torch.testing.assert_close(laid, expected, rtol=1e-4, atol=1e-5)
    assert testbed.model.block2[0].weight.is_contiguous()
    assert set_layout(batch.expand(-1, 3, -1, -1), Execution(channels_last=True)).is_contiguous(
        memory_format=torch.channels_last
    )
    assert set_layout(torch.zeros(2, 3), Execution(channels_last=True)).is_contiguous()


def test_rebatched_streams_hold_the_same_samples():
    testbed = make_testbed(TINY_MLP, CPU)
    rows = torch.cat(testbed.shifted)
    for size in (8, 16, 100):
        again = rebatch(testbed, size)
        assert again.subject.batch == size
        assert {len(batch) for batch in again.shifted} == {size}
        assert len(again.shifted) >= 2
        torch.testing.assert_close(torch.cat(again.shifted)[:32], rows[:32])


def test_profile_shares_sum_to_one(bench):
    for shares in profiling(TINY_IMAGES, bench).shares:
        assert sum(shares.parts.values()) == pytest.approx(1)
        assert shares.parts["convolution"] > 0
        assert shares.busy is None


def test_precision_on_real_data_reuses_saved_source_models(bench, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    write_california(tmp_path / "data")
    bench = replace(bench, data=tmp_path / "data", models=tmp_path / "models")
    first = precision("california", bench)
    assert [entry.precision for entry in first.scores] == [REFERENCE, AGAIN, "bfloat16"]
    assert first.scores[1].difference == (0, 0, 0)
    assert first.scores[2].moved > 0
    assert {(entry.case, len(entry.r_squared)) for entry in first.scores} == {("step/mlp", 2)}
    monkeypatch.setattr("regtta_bench.sweep.runner.train", None)
    assert precision("california", bench).scores[0] == first.scores[0]


def test_missing_data_raises_an_error(bench, tmp_path):
    with pytest.raises(OptionError, match="Pass --data"):
        precision("california", bench)
    with pytest.raises(MissingFileError):
        precision("california", replace(bench, data=tmp_path))


def test_score_is_paired_over_source_models():
    labels = {0: torch.tensor([0.0, 1.0, 2.0, 3.0]), 1: torch.tensor([0.0, 2.0, 4.0, 6.0])}
    exact = dict(labels)
    off = {0: labels[0] + 1.0, 1: labels[1] + 1.0}
    found = score("s", "p", off, exact, labels)
    assert found.r_squared == pytest.approx((1 - 4 / 5, 1 - 4 / 20))
    assert found.difference[0] == pytest.approx(-(0.8 + 0.2) / 2)
    deviations = [float(values.std()) for values in labels.values()]
    assert found.moved == pytest.approx(sum(1 / d for d in deviations) / 2)
    broken = {0: labels[0] * float("nan"), 1: labels[1]}
    assert score("s", "p", broken, exact, labels).difference is None


def test_image_subject_title_is_name_and_batch_size():
    assert (RESNET26.name, RESNET26.title) == ("ResNet-26, 32×32", "ResNet-26, 32×32, batch 64")
