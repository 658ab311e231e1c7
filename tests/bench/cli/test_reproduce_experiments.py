"""Every experiment end to end at toy size, from data in its published layout to its tables."""

import csv
import dataclasses
import json

import pytest

from helpers.toy_datasets import shrink_models, write_all_datasets
from regtta_bench.cli.reproduce import ReproduceOptions, run_experiments
from regtta_bench.paper import EXPERIMENT_NAMES
from regtta_bench.paper.experiments import EXPERIMENTS


class CountingListener:
    def __init__(self):
        self.runs = self.found = 0
        self.trained = set()

    def on_start(self, runs, found):
        self.runs, self.found = runs, found

    def on_training(self, name, done, total):
        self.trained.add(name)

    def on_run(self, spec, result):
        pass


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """Return options that write all experiments to one folder, so that they share runs and source models."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink_models(monkeypatch)
        write_all_datasets(folder, monkeypatch)
        out = tmp_path_factory.mktemp("out") / "results"
        yield ReproduceOptions(names=(), out=out, data=folder, quick=True, source_seeds=1, seeds=1, device="cpu")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_fills_every_cell_of_its_tables(options, name):
    options = dataclasses.replace(options, names=(name,))
    listener = CountingListener()
    (done,) = run_experiments(options, listener)
    table_specs = EXPERIMENTS[name].table_specs({})
    with (options.out / f"{name}.quick.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == sum(1 for table_spec in table_specs for _ in table_spec.cells())
    assert {line["table"] for line in lines} == {table_spec.name for table_spec in table_specs}
    assert all(line["missing"] == "0" for line in lines)
    assert all(line["mean"] or line["diverged"] != "0" for line in lines)
    assert any(line["mean"] for line in lines)
    assert all(line["smoke"] == "True" for line in lines)
    assert all("SMOKE RUN" in table.title or table.title.startswith("Differences") for table in done.tables)
    again = CountingListener()
    run_experiments(options, again)
    assert (again.runs, again.found, again.trained) == (0, listener.runs + listener.found, set())


def test_every_experiment_of_the_paper_is_registered():
    assert set(EXPERIMENT_NAMES) | {"svhn-subset"} == set(EXPERIMENTS)


def test_every_line_has_its_specification_versions_and_device(options):
    run_experiments(dataclasses.replace(options, names=("svhn",)), CountingListener())
    lines = [json.loads(line) for line in (options.out / "runs.jsonl").read_text().splitlines()]
    assert len({line["key"] for line in lines}) == len(lines)
    for line in lines:
        assert {"data", "model", "objective", "recipe", "seed", "rows"} <= line["specification"]["source"].keys()
        assert {"regtta", "torch", "python"} == line["result"]["versions"].keys()
        assert line["result"]["device"] == "cpu"


def test_tables_only_reproduces_the_tables(options):
    run_experiments(dataclasses.replace(options, names=("california",)), CountingListener())
    before = {path.name: path.read_bytes() for path in options.out.glob("california.quick.*")}
    assert {"california.quick.md", "california.quick.csv", "california.quick.tex"} == before.keys()
    for name in before:
        (options.out / name).unlink()
    alone = dataclasses.replace(options, names=("california",), tables_only=True, data=None)
    run_experiments(alone, CountingListener())
    assert {path.name: path.read_bytes() for path in options.out.glob("california.quick.*")} == before


def test_a_user_method_has_a_row_in_tables_by_method(options):
    mine = dataclasses.replace(options, names=("svhn", "ablation"), methods=("ssa:k=3,clip=true",), only=("svhn",))
    svhn, ablation = run_experiments(mine, CountingListener())
    assert "ssa:k=3,clip=true" in {line.name for line in svhn.tables[0].rows}
    assert "ssa:k=3,clip=true" not in {line.name for line in ablation.tables[0].rows}
    assert ablation.tables[0].columns == ("svhn",)
    assert "--method ssa:k=3,clip=true" in (options.out / "svhn.quick.md").read_text()
