"""``regtta collect`` in several processes: the first writes the file of a single process."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.cli_processes import make_worker_group, result_or_error
from helpers.process_groups import run_in_processes
from regtta.cli.collect import CollectOptions, CollectReport, collect_statistics
from regtta.statistics.source import SourceStatistics

OPTIONS = CollectOptions(
    model="mymodel:make_double", data="source.csv", target="y", batch_size=16, out=Path("s.safetensors")
)
RESTORING = replace(OPTIONS, methods=("feature_restoration:bins=4",))


def _collect(group, folder: str, options: CollectOptions):
    reported: list[tuple[int, int | None]] = []
    workers = make_worker_group(group, folder)
    # A second process that wrote the file would fail, as it exists.
    return result_or_error(collect_statistics, options, lambda *seen: reported.append(seen), workers), reported


@pytest.mark.parametrize(("size", "data"), [(2, "source.csv"), (3, "target.parquet"), (4, "target.npz")])
def test_the_file_of_several_processes_is_that_of_one(workspace: Path, size: int, data: str):
    options = replace(RESTORING, data=data)
    alone = collect_statistics(replace(options, out=Path("alone.safetensors")))
    found = run_in_processes(size, _collect, workspace, str(workspace), options)
    for report, _ in found:
        assert report == replace(alone, out=options.out)
    expected, written = SourceStatistics.load("alone.safetensors"), SourceStatistics.load("s.safetensors")
    assert (written.count, written.fingerprint) == (expected.count, expected.fingerprint)
    for name in ("mean", "variances", "feature_variances"):
        torch.testing.assert_close(getattr(written, name), getattr(expected, name), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(written.covariance(), expected.covariance(), rtol=1e-10, atol=1e-12)
    for name, values in expected.extras.items():
        torch.testing.assert_close(written.extras[name], values, rtol=1e-10, atol=1e-12)


def test_progress_counts_the_samples_of_all_processes(workspace: Path):
    options = replace(OPTIONS, data="target.npz", target=None)
    (first, reported), _ = run_in_processes(2, _collect, workspace, str(workspace), options)
    assert isinstance(first, CollectReport)
    assert reported == [(32, 70), (64, 70), (70, 70)]


def test_an_error_is_reported_once_and_nothing_is_written(workspace: Path):
    holes = (workspace / "source.csv").read_text().splitlines()
    holes[1 + 16 * 3 + 2] = "1,,2,3"
    (workspace / "holes.csv").write_text("\n".join(holes))
    options = replace(OPTIONS, data="holes.csv")
    (first, _), (second, _) = run_in_processes(2, _collect, workspace, str(workspace), options)
    said = "The model gives non-finite features on source batch 3."
    assert second.startswith(f"StatisticsError: {said}")
    assert first.startswith(f"PeerError: The processes work together, and process 1 failed: {said}")
    assert not (workspace / "s.safetensors").exists()


def test_an_existing_file_is_detected_before_any_work(workspace: Path):
    (workspace / "s.safetensors").write_text("mine")
    (first, reported), (second, _) = run_in_processes(2, _collect, workspace, str(workspace), OPTIONS)
    assert first.startswith("ExistingFileError: s.safetensors exists")
    assert second.startswith("PeerError: ")
    assert reported == []
    assert (workspace / "s.safetensors").read_text() == "mine"
