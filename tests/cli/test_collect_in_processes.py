"""``regtta collect`` by several processes: the file of one, written by the first."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.cli_processes import outcome, team_of
from helpers.process_groups import run_in_processes
from regtta.cli.collect import CollectOptions, CollectReport, collect_statistics
from regtta.statistics.source import SourceStatistics

OPTIONS = CollectOptions(
    model="mymodel:make_double", data="source.csv", target="y", batch_size=16, out=Path("s.safetensors")
)
RESTORING = replace(OPTIONS, methods=("feature_restoration:bins=4",))


def _collected(group, folder: str, options: CollectOptions):
    told: list[tuple[int, int | None]] = []
    team = team_of(group, folder)
    # A file that more than one process writes would be refused, as it exists.
    return outcome(collect_statistics, options, lambda *seen: told.append(seen), team), told


@pytest.mark.parametrize(("size", "data"), [(2, "source.csv"), (3, "target.parquet"), (4, "target.npz")])
def test_the_file_of_several_processes_is_that_of_one(workspace: Path, size: int, data: str):
    options = replace(RESTORING, data=data)
    alone = collect_statistics(replace(options, out=Path("alone.safetensors")))
    found = run_in_processes(size, _collected, workspace, str(workspace), options)
    for report, _ in found:
        assert report == replace(alone, out=options.out)
    expected, written = SourceStatistics.load("alone.safetensors"), SourceStatistics.load("s.safetensors")
    assert (written.count, written.fingerprint) == (expected.count, expected.fingerprint)
    for name in ("mean", "variances", "feature_variances"):
        torch.testing.assert_close(getattr(written, name), getattr(expected, name), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(written.covariance(), expected.covariance(), rtol=1e-10, atol=1e-12)
    for name, values in expected.extras.items():
        torch.testing.assert_close(written.extras[name], values, rtol=1e-10, atol=1e-12)


def test_progress_speaks_of_all_samples(workspace: Path):
    options = replace(OPTIONS, data="target.npz", target=None)
    (first, told), _ = run_in_processes(2, _collected, workspace, str(workspace), options)
    assert isinstance(first, CollectReport)
    assert told == [(32, 70), (64, 70), (70, 70)]


def test_what_is_wrong_is_said_by_one_and_nothing_is_written(workspace: Path):
    holes = (workspace / "source.csv").read_text().splitlines()
    holes[1 + 16 * 3 + 2] = "1,,2,3"
    (workspace / "holes.csv").write_text("\n".join(holes))
    options = replace(OPTIONS, data="holes.csv")
    (first, _), (second, _) = run_in_processes(2, _collected, workspace, str(workspace), options)
    said = "The model gives non-finite features on source batch 3."
    assert second.startswith(f"StatisticsError: {said}")
    assert first.startswith(f"PeerError: The processes work together, and process 1 failed: {said}")
    assert not (workspace / "s.safetensors").exists()


def test_a_file_in_the_way_is_found_by_the_first_before_any_work(workspace: Path):
    (workspace / "s.safetensors").write_text("mine")
    (first, told), (second, _) = run_in_processes(2, _collected, workspace, str(workspace), OPTIONS)
    assert first.startswith("ExistingFileError: s.safetensors exists")
    assert second.startswith("PeerError: ")
    assert told == []
    assert (workspace / "s.safetensors").read_text() == "mine"
