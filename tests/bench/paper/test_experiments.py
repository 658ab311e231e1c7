from dataclasses import dataclass

import pytest

from regtta.errors import OptionError
from regtta.methods import SSA, NoAdaptation
from regtta_bench.paper import EXPERIMENT_NAMES, TABLE_LABELS, paper_table
from regtta_bench.paper.experiments import EXPERIMENTS, get_experiment
from regtta_bench.paper.method_configs import MethodConfig
from regtta_bench.paper.settings import SETTINGS

# The tables with a row for every method; all others vary one method.
BY_METHOD = {
    *("tab:svhn", "tab:california", "tab:utkface", "tab:biwi-kinect", "atab:biwi-kinect_multi-task"),
    *("tab:utkface_mae", "tab:biwi-kinect_mae", "tab:svhn_online", "tab:utkface_online", "tab:biwi-kinect_online"),
    *("atab:vit_svhn_table", "atab:classification_accuracy_mnist", "atab:classification_accuracy_cifar10c"),
}


@dataclass(frozen=True, kw_only=True)
class Mine(SSA):
    """A method of the user's."""


def as_it_is(method):
    return lambda setting, task: MethodConfig(method, task)


def more_rows(name, extra=None, label=None):
    """The rows beyond the paper's of an experiment's table by method, by name."""
    table_specs = get_experiment(name).table_specs(extra or {})
    (table_spec,) = [one for one in table_specs if one.label in BY_METHOD and label in (None, one.label)]
    return {row.name: row for row in table_spec.rows if all(cell is None or cell.paper is None for cell in row.cells)}


def test_experiments_have_their_name_and_a_summary():
    assert set(EXPERIMENTS) == {*EXPERIMENT_NAMES, "svhn-subset"}
    for name, one in EXPERIMENTS.items():
        assert get_experiment(name) is one
        assert one.name == name
        assert one.summary.endswith(".")
    assert len({one.summary for one in EXPERIMENTS.values()}) == len(EXPERIMENTS)


def test_an_unknown_name_suggests_similar_ones():
    with pytest.raises(OptionError, match="no experiment 'claifornia'.*'california'.*Did you mean 'california'"):
        get_experiment("claifornia")


def test_experiments_list_their_settings():
    runs_on = {name: tuple(setting.name for setting in one.settings) for name, one in EXPERIMENTS.items()}
    assert runs_on["svhn"] == ("svhn",)
    assert runs_on["california"] == ("california",)
    assert runs_on["biwi-multitask"] == ("biwi-multitask",)
    assert runs_on["vit"] == ("svhn-vit",)
    assert runs_on["classification-cifar10c"] == ("cifar10c",)
    assert runs_on["svhn-subset"] == ("svhn-subset",)
    assert runs_on["mae"] == ("utkface", "biwi")
    assert set(runs_on["subspace"]) == {"svhn", "cifar10c", "utkface", "biwi", "california"}
    assert {name for names in runs_on.values() for name in names} == set(SETTINGS)


def test_every_table_of_the_paper_is_in_an_experiment():
    assert {table_spec.label for one in EXPERIMENTS.values() for table_spec in one.table_specs({})} == set(TABLE_LABELS)


def test_the_tables_by_method_are_those_with_an_oracle():
    with_oracle = {label for label in TABLE_LABELS if any(row.name == "oracle" for row in paper_table(label).rows)}
    assert with_oracle == BY_METHOD


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_user_method_has_a_row_in_every_table_by_method(name):
    mine = Mine(k=7)
    for table_spec in get_experiment(name).table_specs({"mine": as_it_is(mine)}):
        rows = [row for row in table_spec.rows if row.name == "mine"]
        if table_spec.label not in BY_METHOD:
            assert rows == []
            continue
        (row,) = rows
        assert row is table_spec.rows[-1]
        paper = table_spec.rows[0]
        for cell, beside in zip(row.cells, paper.cells, strict=True):
            assert (cell.method_config.method, cell.method_config.batch_size, cell.paper) == (mine, 64, None)
            assert cell.method_config.objective == cell.task
            assert cell.group == beside.group


def test_additional_rows_of_regression_tables():
    rows = more_rows("svhn")
    assert list(rows) == ["feature_alignment", "ttt: its source", "ssa, clipped at the rank", "oracle, all parameters"]
    assert rows["ssa, clipped at the rank"].cells[0].method_config.method == SSA.from_paper(k=100, clip=True)
    assert rows["oracle, all parameters"].cells[0].method_config.method.trainable == "all"
    its_source = rows["ttt: its source"].cells[0].method_config
    assert (its_source.method, its_source.objective, its_source.paired) == (NoAdaptation(), "rotation", False)


def test_additional_rows_of_california():
    rows = more_rows("california")
    assert "ttt: its source" not in rows  # the paper turns no tables
    changed = {name: rows[f"ssa, {name}"].cells[0].method_config.method for name in ("released", "affine 1e-4")}
    assert {name: (method.trainable, method.lr) for name, method in changed.items()} == {
        "released": ("extractor", 1e-4),
        "affine 1e-4": ("affine", 1e-4),
    }
    assert not any(name.startswith("ssa, released") for name in more_rows("svhn"))


@pytest.mark.parametrize("name", ["classification-svhn", "classification-cifar10c"])
def test_additional_rows_of_classification_tables(name):
    rows = more_rows(name)
    assert list(rows) == ["bn_adapt", "ssa, clipped at the rank", "oracle, all parameters"]
    for row in rows.values():
        assert {cell.method_config.objective for cell in row.cells} == {"classification"}
    assert rows["ssa, clipped at the rank"].cells[0].method_config.method == SSA.from_paper(
        k=100, clip=True, weighting=False
    )
    oracle = rows["oracle, all parameters"].cells[0].method_config.method
    assert (oracle.task, oracle.trainable) == ("classification", "all")


def test_the_source_model_of_ttt_has_a_row_only_where_the_paper_has_ttt():
    for name in EXPERIMENT_NAMES:
        for table_spec in get_experiment(name).table_specs({}):
            names = [row.name for row in table_spec.rows]
            assert ("ttt: its source" in names) == ("ttt" in names)


def test_the_subset_has_the_additional_rows_too():
    whole, subset = (
        more_rows("svhn", {"mine": as_it_is(Mine())}),
        more_rows("svhn-subset", {"mine": as_it_is(Mine())}, "tab:svhn"),
    )
    assert list(whole) == list(subset)
    for name in whole:
        assert [cell.method_config for cell in whole[name].cells] == [cell.method_config for cell in subset[name].cells]


def test_row_names_are_unique():
    for one in EXPERIMENTS.values():
        for table_spec in one.table_specs({"mine": as_it_is(Mine())}):
            names = [row.name for row in table_spec.rows]
            assert len(set(names)) == len(names)
            assert all(len(row.cells) == len(table_spec.columns) for row in table_spec.rows)
