"""Records of runs that are JSON and yet not what regtta wrote: no page and no table is made of them."""

import json
from pathlib import Path

import pytest

from regtta.errors import InvalidFileError, RegttaError
from regtta.report.recorder import ADAPTATION
from regtta.report.run_kinds import build_page
from regtta_bench.cli.reproduce import RUNS_FILE, ReproduceOptions, run_experiments

LINES = (Path(__file__).parents[2] / "results" / "california" / "runs.jsonl").read_text().splitlines()[:200]


@pytest.mark.parametrize("result", [{}, {"scores": []}, {"scores": {"r2": "good"}}, {"device": 1, "versions": []}])
def test_runs_without_their_results_are_refused(tmp_path: Path, result):
    lines = [json.loads(line) for line in LINES]
    text = "".join(json.dumps({**line, "result": result}) + "\n" for line in lines)
    (tmp_path / RUNS_FILE).write_text(text)
    with pytest.raises(
        InvalidFileError, match=f"{RUNS_FILE} holds a run that is damaged, or that another version made"
    ):
        run_experiments(ReproduceOptions(names=("california",), out=tmp_path, tables_only=True), listener=None)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"method": 7, "data": [], "scores": "x", "versions": None},
        {key: {} for key in ("method", "model", "data", "scores", "stream", "batches", "versions")},
        {key: [1e308, -1] for key in ("method", "model", "data", "scores", "stream", "batches", "versions")},
    ],
)
def test_a_record_without_what_belongs_in_it_makes_no_page(tmp_path: Path, content):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"format": ADAPTATION, **content}))
    with pytest.raises(RegttaError, match=r"run\.json is damaged or was written by another version"):
        build_page([path], "regtta report run.json")
