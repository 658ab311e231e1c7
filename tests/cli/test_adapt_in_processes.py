"""``regtta adapt`` by several processes: the files of one, to float tolerance, and one set of them."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from helpers.cli_processes import outcome, team_of
from helpers.cli_workspace import TARGET_ROWS
from helpers.process_groups import run_in_processes
from regtta.cli.adapt import AdaptOptions, AdaptReport, adapt_model
from regtta.cli.adapt_options import Protocol
from regtta.cli.collect import CollectOptions, collect_statistics
from regtta.cli.outputs import WRITTEN

# 23 rows a batch: the last one has a single row, and most processes none of it.
BASE = AdaptOptions(
    model="mymodel:make_double",
    data="target.csv",
    weights=Path("weights.safetensors"),
    stats=Path("stats.safetensors"),
    target="y",
    batch_size=23,
)
SSA = replace(BASE, settings=("k=4", "lr=1e-2"))
SCENES = {
    "online": replace(SSA, adapted_weights=Path("w.safetensors"), diagnostics=Path("d.jsonl"), monitor=Path("m.jsonl")),
    "offline": replace(SSA, protocol=Protocol.offline, shuffle_seed=3, record=Path("r.json")),
    "safe": replace(SSA, safe=True, diagnostics=Path("d.jsonl")),
    "head found": replace(BASE, method="bn_adapt", stats=None, data="target.npz"),
    "labels": replace(BASE, method="oracle", settings=("lr=1e-2",), diagnostics=Path("d.jsonl")),
}


def _in(folder: str, options: AdaptOptions) -> AdaptOptions:
    """The options with predictions, and with everything that is written in ``folder``."""
    options = replace(options, predictions=Path("p.csv"))
    written = {name: getattr(options, name) for name in WRITTEN}
    return replace(options, **{name: Path(folder) / path for name, path in written.items() if path is not None})


def _scenes(group, home: str, names: list[str]) -> dict[str, Any]:
    team = team_of(group, home)
    return {name: outcome(adapt_model, _in(f"together/{name}", SCENES[name]), None, team) for name in names}


def _close(found: Any, expected: Any, where: str) -> None:
    """Compare what JSON holds, numbers to float tolerance."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected.keys() - {"command", "written"}:
            _close(found[key], expected[key], f"{where}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            _close(one, other, f"{where}/{index}")
    elif isinstance(expected, float):
        assert math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-8), f"{where}: {found} is not {expected}"
    else:
        assert found == expected, where


def _content(path: Path) -> Any:
    if path.suffix == ".csv":
        return pd.read_csv(path).to_dict("list")
    if path.suffix == ".safetensors":
        return {name: value.tolist() for name, value in load_file(path).items()}
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("size", "names"), [(2, list(SCENES)), (4, ["online", "head found"])])
def test_the_files_of_several_processes_are_those_of_one(workspace: Path, statistics: Path, size: int, names: list):
    for name in names:
        (workspace / "alone" / name).mkdir(parents=True)
        (workspace / "together" / name).mkdir(parents=True)
    _collect_double(statistics)
    alone = {name: adapt_model(_in(f"alone/{name}", SCENES[name])) for name in names}
    assert sum(report.learned for report in alone.values()) > len(names)
    listed = {path.name for path in workspace.iterdir()}
    found = run_in_processes(size, _scenes, workspace, str(workspace), names, timeout=120)
    for name in names:
        for reports in found:
            assert isinstance(reports[name], AdaptReport), reports[name]
            assert reports[name].samples == TARGET_ROWS
            assert (reports[name].learned, reports[name].refused) == (alone[name].learned, alone[name].refused)
            np.testing.assert_allclose(reports[name].scores[1].r2, alone[name].scores[1].r2, rtol=1e-8)
        files = sorted(path.name for path in (workspace / "alone" / name).iterdir())
        assert sorted(path.name for path in (workspace / "together" / name).iterdir()) == files
        for file in files:
            _close(_content(workspace / "together" / name / file), _content(workspace / "alone" / name / file), file)
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


def _resumed(group, home: str, options: AdaptOptions) -> Any:
    return outcome(adapt_model, options, None, team_of(group, home))


def test_a_stream_of_one_process_goes_on_in_two(workspace: Path, statistics: Path):
    _collect_double(statistics)
    options = replace(SSA, diagnostics=Path("d.jsonl"))
    adapt_model(replace(options, predictions=Path("whole.csv"), diagnostics=Path("whole.jsonl")))

    whole = (workspace / "target.csv").read_text().splitlines()
    (workspace / "target.csv").write_text("\n".join(whole[: 1 + 46]))
    begun = replace(options, predictions=Path("begun.csv"), checkpoint=Path("c.safetensors"), diagnostics=None)
    adapt_model(begun)
    (workspace / "target.csv").write_text("\n".join(whole))
    resumed = replace(options, predictions=Path("p.csv"), checkpoint=Path("c.safetensors"), resume=True)
    found = run_in_processes(2, _resumed, workspace, str(workspace), resumed)
    assert all(isinstance(report, AdaptReport) for report in found), found
    _close(_content(workspace / "p.csv"), _content(workspace / "whole.csv"), "predictions")
    _close(_content(workspace / "d.jsonl"), _content(workspace / "whole.jsonl"), "diagnostics")
    again = replace(resumed, predictions=Path("again.csv"), diagnostics=None)
    adapt_model(again)  # and from there in one
    _close(_content(workspace / "again.csv"), _content(workspace / "whole.csv"), "predictions")


def _misled(group, home: str) -> list[str]:
    team = team_of(group, home)
    wrong = [
        replace(SSA, predictions=Path("p.txt")),
        replace(SSA, predictions=Path("p.csv"), data="none.csv"),
        replace(SSA, predictions=Path("p.csv"), data="target.csv" if team.first else "none.csv"),
        replace(SSA, predictions=Path("p.csv"), stats=Path("weights.safetensors")),
    ]
    return [outcome(adapt_model, options, None, team) for options in wrong]


def test_what_is_wrong_is_said_by_the_first_that_has_it(workspace: Path, statistics: Path):
    first, second = run_in_processes(2, _misled, workspace, str(workspace))
    assert first[0] == "OptionError: Expected --predictions to end in .csv or .parquet, found p.txt."
    assert first[1].startswith("MissingFileError: There is no file none.csv.")
    told = "PeerError: The processes work together, and process {} failed: "
    assert first[2].startswith(f"{told.format(1)}There is no file none.csv.")
    assert first[3].startswith("ForeignFileError: ")
    assert second[2].startswith("MissingFileError: ")
    for index in (0, 1, 3):
        assert second[index].startswith(told.format(0))
    assert not (workspace / "p.csv").exists()


def test_every_path_that_is_written_is_one_that_others_write_elsewhere():
    paths = {name for name, kind in get_type_hints(AdaptOptions).items() if kind == Path | None}
    assert paths - {"weights", "stats"} == set(WRITTEN)
