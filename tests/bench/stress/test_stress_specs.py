import dataclasses

import pytest

from helpers.stress_lines import line
from regtta.guards import SAFE, Gate
from regtta.methods import SSA, NoAdaptation
from regtta_bench.paper.method_configs import make_method_config
from regtta_bench.paper.settings import SETTINGS as PAPER_SETTINGS
from regtta_bench.stress.stress_settings import ADAPTATION_METHODS, GUARDS, STRESS_SETTINGS, DigitsSource
from regtta_bench.stress.stress_specs import StressPlan, is_current_run
from regtta_bench.training import SVHN


def runs(**options):
    return StressPlan(STRESS_SETTINGS["demo"], **options).runs()


def test_the_full_benchmark_runs_every_method_on_every_kind_with_and_without_guards():
    every = runs(source_models=2, gate_batches=0)
    # Six kinds have a stream for each of five degradations, three have one.
    assert len(every) == 2 * (6 * 5 + 3) * (1 + len(ADAPTATION_METHODS) * 3 * 2)
    assert len({str(spec.to_dict()) for spec in every}) == len(every)
    assert {spec.source.seed for spec in every} == {0, 1}
    assert {spec.part for spec in every if spec.kind in ("mixed", "unshifted", "unshifted_sorted")} == {""}


def test_source_runs_once_on_each_stream():
    sources = [spec for spec in runs(source_models=1) if spec.method_name == "source"]
    assert len(sources) == 6 * 5 + 3
    assert {type(spec.method) for spec in sources} == {NoAdaptation}


def test_the_gate_is_tried_on_clean_data_and_on_every_shift():
    gated = [spec for spec in runs(source_models=1, kinds=("sorted",), method_names=("rsd",)) if spec.guards == "gate"]
    assert [(spec.kind, spec.part, spec.length) for spec in gated] == [
        ("redrawn", "", 640_000),
        *(("iid", part, 0) for part in STRESS_SETTINGS["demo"].parts),
    ]
    assert {(spec.method_name, spec.batch_size) for spec in gated} == {("ssa", 64)}


@pytest.mark.parametrize("name", ["california", "svhn-subset"])
def test_hyperparameters_and_source_models_are_those_of_the_papers_tables(name):
    setting, paper = STRESS_SETTINGS[name], PAPER_SETTINGS[name]
    for method_name in set(ADAPTATION_METHODS) - {"ssa_window", "variance_minimization"}:
        assert setting.method(method_name) == make_method_config(paper, method_name).method
    window = setting.method("ssa_window")
    assert window == dataclasses.replace(setting.method("ssa"), window=64, batch_norm="blended")
    assert (setting.method("variance_minimization") is None) == (name == "california")
    recipe = SVHN if name == "svhn-subset" else paper.recipe  # 100 epochs, as in the committed results
    assert (setting.source(3).data, setting.source(3).recipe, setting.source(3).seed) == (name, recipe, 3)


def test_the_demo_has_ssa_of_the_paper_up_to_the_rank():
    assert STRESS_SETTINGS["demo"].method("ssa") == SSA.from_paper(clip=True)
    assert STRESS_SETTINGS["demo"].method("ssa_window") == SSA.from_paper(clip=True, window=64, batch_norm="blended")
    assert STRESS_SETTINGS["demo"].source(2) == DigitsSource(2)
    assert STRESS_SETTINGS["svhn-subset"].length == 2000


def test_a_record_is_current_only_if_its_run_would_have_the_same_key(monkeypatch):
    safe = line(0.5, guards="safe")
    assert is_current_run(safe)
    assert is_current_run(line(0.5, method_name="rsd"))
    looser = tuple(Gate(level=0.5) if isinstance(guard, Gate) else guard for guard in SAFE)
    monkeypatch.setattr("regtta_bench.stress.stress_specs.GUARDS", {**GUARDS, "safe": looser})
    assert not is_current_run(safe)
    assert is_current_run(line(0.5, guards="safe"))


@pytest.mark.parametrize(("field", "value"), [("setting", "gone"), ("arm", "gone"), ("guards", "gone")])
def test_a_record_with_unknown_names_is_not_current(field, value):
    record = line(0.5)
    record["specification"][field] = value
    assert not is_current_run(record)
