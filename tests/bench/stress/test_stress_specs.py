import dataclasses

import pytest

from helpers.stress_lines import line
from regtta.guards import SAFE, Gate
from regtta.methods import SSA, Source
from regtta_bench.paper.method_configs import make_method_config
from regtta_bench.paper.settings import SETTINGS as OF_THE_PAPER
from regtta_bench.stress import stress_settings as arms
from regtta_bench.stress.stress_settings import ADAPTING, SETTINGS, DigitsSource
from regtta_bench.stress.stress_specs import Plan, is_current


def runs(**options):
    return Plan(SETTINGS["demo"], **options).runs()


def test_the_whole_benchmark_is_every_method_on_every_kind_with_and_without_guards():
    every = runs(source_models=2, gate_batches=0)
    # Six kinds have a stream for each of five degradations, three have one.
    assert len(every) == 2 * (6 * 5 + 3) * (1 + len(ADAPTING) * 3 * 2)
    assert len({str(spec.to_dict()) for spec in every}) == len(every)
    assert {spec.source.seed for spec in every} == {0, 1}
    assert {spec.part for spec in every if spec.kind in ("mixed", "unshifted", "unshifted_sorted")} == {""}


def test_source_runs_once_on_each_stream():
    sources = [spec for spec in runs(source_models=1) if spec.arm == "source"]
    assert len(sources) == 6 * 5 + 3
    assert {type(spec.method) for spec in sources} == {Source}


def test_the_gate_is_tried_on_clean_data_and_on_every_shift():
    gated = [spec for spec in runs(source_models=1, kinds=("sorted",), arms=("rsd",)) if spec.guards == "gate"]
    assert [(spec.kind, spec.part, spec.length) for spec in gated] == [
        ("redrawn", "", 640_000),
        *(("iid", part, 0) for part in SETTINGS["demo"].parts),
    ]
    assert {(spec.arm, spec.batch_size) for spec in gated} == {("ssa", 64)}


@pytest.mark.parametrize("name", ["california", "svhn-subset"])
def test_hyperparameters_and_source_models_are_those_of_the_papers_tables(name):
    setting, paper = SETTINGS[name], OF_THE_PAPER[name]
    for arm in set(ADAPTING) - {"ssa_window", "variance_minimization"}:
        assert setting.method(arm) == make_method_config(paper, arm).method
    window = setting.method("ssa_window")
    assert window == dataclasses.replace(setting.method("ssa"), window=64, batch_norm="blended")
    assert (setting.method("variance_minimization") is None) == (name == "california")
    assert (setting.source(3).data, setting.source(3).recipe, setting.source(3).seed) == (name, paper.recipe, 3)


def test_the_demo_has_the_librarys_defaults():
    assert SETTINGS["demo"].method("ssa") == SSA()
    assert SETTINGS["demo"].method("ssa_window") == SSA(window=64, batch_norm="blended")
    assert SETTINGS["demo"].source(2) == DigitsSource(2)
    assert SETTINGS["svhn-subset"].length == 2000


def test_a_line_counts_only_while_its_run_would_be_made_so_today(monkeypatch):
    safe = line(0.5, guards="safe")
    assert is_current(safe)
    assert is_current(line(0.5, arm="rsd"))
    looser = tuple(Gate(level=0.5) if isinstance(guard, Gate) else guard for guard in SAFE)
    monkeypatch.setattr("regtta_bench.stress.stress_specs.GUARDS", {**arms.GUARDS, "safe": looser})
    assert not is_current(safe)
    assert is_current(line(0.5, guards="safe"))


@pytest.mark.parametrize(("field", "value"), [("setting", "gone"), ("arm", "gone"), ("guards", "gone")])
def test_a_line_of_names_that_are_gone_does_not_count(field, value):
    record = line(0.5)
    record["specification"][field] = value
    assert not is_current(record)
