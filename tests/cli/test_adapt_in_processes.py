"""``regtta adapt`` in several processes writes the files of a single process, to float tolerance, once."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from helpers.cli_processes import make_worker_group, result_or_error
from helpers.cli_workspace import TARGET_ROWS
from helpers.process_groups import run_in_processes
from regtta.cli.adapt import AdaptOptions, AdaptReport, adapt_model
from regtta.cli.adapt_options import Protocol
from regtta.cli.collect import CollectOptions, collect_statistics
from regtta.cli.outputs import OUTPUT_FIELDS

# With 23 rows per batch, the last one has a single row, and most processes get none of it.
BASE = AdaptOptions(
    model="mymodel:make_double",
    data="target.csv",
    weights=Path("weights.safetensors"),
    stats=Path("stats.safetensors"),
    target="y",
    batch_size=23,
)
SSA = replace(BASE, settings=("k=4", "lr=1e-2"))
CASES = {
    "online": replace(SSA, adapted_weights=Path("w.safetensors"), diagnostics=Path("d.jsonl"), monitor=Path("m.jsonl")),
    "offline": replace(SSA, protocol=Protocol.offline, shuffle_seed=3, record=Path("r.json")),
    "safe": replace(SSA, safe=True, diagnostics=Path("d.jsonl")),
    "head found": replace(BASE, method="bn_adapt", stats=None, data="target.npz"),
    "labels": replace(BASE, method="oracle", settings=("lr=1e-2",), diagnostics=Path("d.jsonl")),
}


def _with_outputs_in(folder: str, options: AdaptOptions) -> AdaptOptions:
    """Return the options with predictions, and with every output in ``folder``."""
    options = replace(options, predictions=Path("p.csv"))
    written = {name: getattr(options, name) for name in OUTPUT_FIELDS}
    return replace(options, **{name: Path(folder) / path for name, path in written.items() if path is not None})


def _run_cases(group, home: str, names: list[str]) -> dict[str, Any]:
    workers = make_worker_group(group, home)
    return {
        name: result_or_error(adapt_model, _with_outputs_in(f"together/{name}", CASES[name]), None, workers)
        for name in names
    }


def _assert_close(found: Any, expected: Any, where: str) -> None:
    """Compare JSON values, numbers to float tolerance."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected.keys() - {"command", "written"}:
            _assert_close(found[key], expected[key], f"{where}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            _assert_close(one, other, f"{where}/{index}")
    elif isinstance(expected, float):
        assert math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-8), f"{where}: {found} is not {expected}"
    else:
        assert found == expected, where


def _read_content(path: Path) -> Any:
    if path.suffix == ".csv":
        return pd.read_csv(path).to_dict("list")
    if path.suffix == ".safetensors":
        return {name: value.tolist() for name, value in load_file(path).items()}
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("size", "names"), [(2, list(CASES)), (4, ["online", "head found"])])
def test_the_files_of_several_processes_are_those_of_one(workspace: Path, statistics: Path, size: int, names: list):
    for name in names:
        (workspace / "alone" / name).mkdir(parents=True)
        (workspace / "together" / name).mkdir(parents=True)
    _collect_double(statistics)
    alone = {name: adapt_model(_with_outputs_in(f"alone/{name}", CASES[name])) for name in names}
    assert sum(report.learned for report in alone.values()) > len(names)
    listed = {path.name for path in workspace.iterdir()}
    found = run_in_processes(size, _run_cases, workspace, str(workspace), names, timeout=120)
    for name in names:
        for reports in found:
            assert isinstance(reports[name], AdaptReport), reports[name]
            assert reports[name].samples == TARGET_ROWS
            assert (reports[name].learned, reports[name].refused) == (alone[name].learned, alone[name].refused)
            np.testing.assert_allclose(reports[name].scores[1].r2, alone[name].scores[1].r2, rtol=1e-8)
        files = sorted(path.name for path in (workspace / "alone" / name).iterdir())
        assert sorted(path.name for path in (workspace / "together" / name).iterdir()) == files
        for file in files:
            _assert_close(
                _read_content(workspace / "together" / name / file),
                _read_content(workspace / "alone" / name / file),
                file,
            )
    of_the_test = {"__pycache__", *(path.name for path in workspace.glob(f"*-{size}-*"))}
    assert {path.name for path in workspace.iterdir()} - of_the_test == listed - of_the_test


def _collect_double(path: Path) -> None:
    options = CollectOptions(
        model="mymodel:make_double",
        data="source.csv",
        out=path,
        weights=Path("weights.safetensors"),
        target="y",
        force=True,
    )
    collect_statistics(options)


def _resume(group, home: str, options: AdaptOptions) -> Any:
    return result_or_error(adapt_model, options, None, make_worker_group(group, home))


def test_a_stream_of_one_process_resumes_in_two(workspace: Path, statistics: Path):
    _collect_double(statistics)
    options = replace(SSA, diagnostics=Path("d.jsonl"))
    adapt_model(replace(options, predictions=Path("whole.csv"), diagnostics=Path("whole.jsonl")))

    whole = (workspace / "target.csv").read_text().splitlines()
    (workspace / "target.csv").write_text("\n".join(whole[: 1 + 46]))
    begun = replace(options, predictions=Path("begun.csv"), checkpoint=Path("c.safetensors"), diagnostics=None)
    adapt_model(begun)
    (workspace / "target.csv").write_text("\n".join(whole))
    resumed = replace(options, predictions=Path("p.csv"), checkpoint=Path("c.safetensors"), resume=True)
    found = run_in_processes(2, _resume, workspace, str(workspace), resumed)
    assert all(isinstance(report, AdaptReport) for report in found), found
    _assert_close(_read_content(workspace / "p.csv"), _read_content(workspace / "whole.csv"), "predictions")
    _assert_close(_read_content(workspace / "d.jsonl"), _read_content(workspace / "whole.jsonl"), "diagnostics")
    again = replace(resumed, predictions=Path("again.csv"), diagnostics=None)
    adapt_model(again)  # and from there in one
    _assert_close(_read_content(workspace / "again.csv"), _read_content(workspace / "whole.csv"), "predictions")


def _run_with_errors(group, home: str) -> list[str]:
    workers = make_worker_group(group, home)
    wrong = [
        replace(SSA, predictions=Path("p.txt")),
        replace(SSA, predictions=Path("p.csv"), data="none.csv"),
        replace(SSA, predictions=Path("p.csv"), data="target.csv" if workers.is_first else "none.csv"),
        replace(SSA, predictions=Path("p.csv"), stats=Path("weights.safetensors")),
    ]
    return [result_or_error(adapt_model, options, None, workers) for options in wrong]


def test_an_error_is_reported_by_the_first_process_that_has_it(workspace: Path, statistics: Path):
    first, second = run_in_processes(2, _run_with_errors, workspace, str(workspace))
    assert first[0] == "OptionError: Expected --predictions to end in .csv or .parquet, found p.txt."
    assert first[1].startswith("MissingFileError: There is no file none.csv.")
    prefix = "PeerError: The processes work together, and process {} failed: "
    assert first[2].startswith(f"{prefix.format(1)}There is no file none.csv.")
    assert first[3].startswith("InvalidFileError: ")
    assert second[2].startswith("MissingFileError: ")
    for index in (0, 1, 3):
        assert second[index].startswith(prefix.format(0))
    assert not (workspace / "p.csv").exists()


def test_every_output_path_is_redirected_in_other_processes():
    paths = {name for name, kind in get_type_hints(AdaptOptions).items() if kind == Path | None}
    assert paths - {"weights", "stats", "labels"} == set(OUTPUT_FIELDS)
