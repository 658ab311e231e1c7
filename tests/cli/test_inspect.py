import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.cli_workspace import extract_inputs, library_model
from regtta.cli.inspect import inspect_statistics
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics


def features(workspace: Path) -> np.ndarray:
    with torch.no_grad():
        return library_model()[:3](extract_inputs(workspace / "source.csv")).double().numpy()


def test_the_spectrum_is_that_of_the_features(workspace: Path, statistics: Path):
    report = inspect_statistics(statistics)
    eigenvalues = np.linalg.eigvalsh(np.cov(features(workspace), rowvar=False))[::-1]
    np.testing.assert_allclose([d.variance for d in report.spectrum], eigenvalues, rtol=1e-4, atol=1e-9)
    shares = eigenvalues / eigenvalues.sum()
    np.testing.assert_allclose([d.share for d in report.spectrum], shares, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose([d.cumulative for d in report.spectrum], shares.cumsum(), rtol=1e-4)
    for share, count in report.directions_for.items():
        assert shares[:count].sum() >= share
        assert shares[: count - 1].sum() < share
    assert list(report.directions_for) == [0.9, 0.95, 0.99, 0.999]


def test_json_holds_all_values(workspace: Path, statistics: Path, regtta):
    found = json.loads(regtta("inspect", statistics.name, "--json").stdout)
    source = SourceStatistics.load(statistics)
    assert (found["samples"], found["head"], found["fingerprint"]) == (120, "3", source.fingerprint)
    assert (found["dimensions"], found["rank"]) == (8, source.rank)
    assert found["valid_dimensions"] == source.valid_dimensions
    assert [d["variance"] for d in found["spectrum"]] == source.variances.tolist()
    assert found["directions_for"]["0.9"] == source.dimensions_for(0.9)


def test_the_terminal_output(workspace: Path, statistics: Path, regtta):
    lines = regtta("inspect", statistics.name).stdout.splitlines()
    source = SourceStatistics.load(statistics)
    assert any(line.split() == ["fingerprint", source.fingerprint] for line in lines)
    first = next(line for line in lines if line.startswith("1 "))
    assert f"{source.variances[0]:.4g}" in first
    assert first.count("█") == 24  # the largest fills the bar
    carried = next(line for line in lines if line.startswith("99 %"))
    assert f"in {source.dimensions_for(0.99)} direction" in carried


def test_columns_and_moments_of_the_inputs(workspace: Path, statistics: Path, regtta):
    shown = dict(line.split(maxsplit=1) for line in regtta("inspect", statistics.name).stdout.splitlines() if line)
    assert shown["columns"] == "3: a, b, c"
    assert shown["inputs"] == "mean and variance of 3 columns"
    source = SourceStatistics.load(statistics)
    nothing = {"input_mean": torch.empty(0), "input_variance": torch.empty(0), "input_covariance": torch.empty(0, 0)}
    unknown = replace(source, columns=(), input_count=0, **nothing)
    unknown.save("unknown.safetensors")
    shown = dict(
        line.split(maxsplit=1) for line in regtta("inspect", "unknown.safetensors").stdout.splitlines() if line
    )
    assert (shown["columns"], shown["inputs"]) == ("not known", "no moments")
    one = {name: torch.ones(1).double() for name in ("input_mean", "input_variance", "input_ranges")}
    one["input_covariance"] = torch.empty(0, 0)
    replace(source, columns=tuple(f"gene{i}" for i in range(300)), **one).save("wide.safetensors")
    assert "300: gene0, gene1" in regtta("inspect", "wide.safetensors").stdout
    assert "gene11 and 288 more\n" in regtta("inspect", "wide.safetensors").stdout
    found = json.loads(regtta("inspect", "wide.safetensors", "--json").stdout)
    assert (len(found["columns"]), found["input_moments"]) == (300, 1)


def test_a_long_spectrum_is_truncated(tmp_path: Path, regtta):
    moments = Moments.from_features(torch.ones(5, 40) * torch.arange(5.0)[:, None])
    path = tmp_path / "line.safetensors"
    extras = {"rsd/basis": torch.zeros(1)}
    SourceStatistics.from_moments(moments, head="fc", fingerprint="f", extras=extras).save(path)
    shown = regtta("inspect", path).stdout
    assert "30 more" in shown
    assert "rsd/basis" in shown
    found = json.loads(regtta("inspect", path, "--json").stdout)
    assert found["rank"] == 1
    assert [direction["share"] for direction in found["spectrum"]] == pytest.approx([1.0] + [0.0] * 39)


def test_constant_features_are_rejected(tmp_path: Path, refusal):
    path = tmp_path / "flat.safetensors"
    SourceStatistics.from_moments(Moments.from_features(torch.ones(5, 40)), head="fc", fingerprint="f").save(path)
    assert "rank from 1 to 4, found 0" in refusal("inspect", path)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no file s.safetensors"), (b"PK\x03\x04 archive", "regtta never loads one"), (b"{}", "cut off")],
)
def test_unreadable_files_are_rejected(workspace: Path, refusal, content, words):
    if content is not None:
        Path("s.safetensors").write_bytes(content)
    assert words in refusal("inspect", "s.safetensors")
