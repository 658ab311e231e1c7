import pytest

from regtta.errors import OptionError
from regtta.methods import METHODS, SSA
from regtta_bench.paper import SETTINGS, make_method_config
from regtta_bench.shifts import SHIFTS, SOURCES, select_shifts
from regtta_bench.shifts.rows import OMITTED, SSA_PAPER, make_table, parse_row, suite_rows
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.sweep.store import compute_key

TABLE, IMAGES = SOURCES["bike-2011"], SOURCES["svhn"]


def config(row, setting=TABLE):
    return suite_rows()[row](setting, "regression")


def test_every_method_has_a_row_but_those_with_source_models_or_tasks_of_their_own():
    methods = {config(row, IMAGES).method.name for row in suite_rows()}
    assert {name for name in METHODS if METHODS[name].__module__.startswith("regtta.")} - methods == set(OMITTED)


def test_the_first_row_is_the_source_model_and_the_last_the_oracle():
    names = list(suite_rows())
    assert (names[0], names[1], names[-1]) == ("source", "bn_adapt", "oracle")
    assert SSA_PAPER in names


@pytest.mark.parametrize(("setting", "clip"), [(TABLE, True), (IMAGES, False)], ids=["table", "images"])
def test_the_papers_ssa_is_limited_to_the_rank_on_tables_only(setting, clip):
    method = config(SSA_PAPER, setting).method
    assert (method.k, method.clip, method.batch_norm, method.lr) == (100, clip, "batch", 1e-3)


def test_ssa_is_the_default_and_its_variants_differ_as_named():
    assert config("ssa").method == config("ssa, SAFE").method == SSA()
    assert (config("ssa").guards, config("ssa, SAFE").guards) == ("default", "safe")
    source = config("ssa, source BatchNorm").method
    assert (source.batch_norm, source.k, source.lr) == ("source", "auto", 1e-2)


def test_methods_for_images_have_no_cell_on_tables():
    assert config("variance_minimization") is None
    assert config("variance_minimization", IMAGES) is not None
    table = make_table(select_shifts(["svhn-to-mnist", "cmapss-drift"]), suite_rows())
    (row,) = (row for row in table.rows if row.name == "variance_minimization")
    assert [cell is None for cell in row.cells] == [False, True]


def test_the_papers_rows_on_the_subset_of_svhn_are_the_runs_of_its_experiment():
    setting = SETTINGS["svhn-subset"]
    (shift,) = select_shifts(["svhn-to-mnist"])
    table = make_table((shift,), suite_rows())
    cells = {row.name: row.cells[0] for row in table.rows}
    plan = SweepPlan(seeds=1)
    for row, method in (("source", "source"), ("bn_adapt", "bn_adapt"), (SSA_PAPER, "ssa"), ("oracle", "oracle")):
        ((ours, _),) = plan.cell_runs(cells[row], 2, 0)
        assert ours.method_config == make_method_config(setting, method)
        assert ours.source == plan.source_spec(setting, setting.parts["mnist"], "regression", 2)
        assert compute_key(ours.to_dict()) == compute_key(
            {**ours.to_dict(), "source": plan.source_spec(setting, setting.parts["mnist"], "regression", 2).to_dict()}
        )


def test_a_plan_has_each_run_of_the_suite_once():
    table = make_table(SHIFTS, suite_rows())
    runs = SweepPlan(seeds=1).all_runs([table])
    expected = sum(cell.setting.source_seeds for cell in table.cells())
    assert len(runs) == len({compute_key(run.to_dict()) for run in runs}) == expected


def test_a_further_row_has_the_librarys_defaults_and_the_options_given():
    parsed = parse_row("ssa:k=7,guards=safe,metric=w2")(TABLE, "regression")
    assert parsed.method == SSA(k=7, metric="w2")
    assert parsed.guards == "safe"
    assert parse_row("bn_adapt")(TABLE, "regression").guards == "default"


@pytest.mark.parametrize("text", ["ssa:guards=none", "ssa:kk=3", "sssa"])
def test_a_further_row_with_a_mistake_is_an_error(text):
    with pytest.raises(OptionError):
        parse_row(text)
