import json
import math
import statistics

import numpy as np
import pytest

from regtta.methods import NoAdaptation
from regtta_bench.paper.method_configs import MethodConfig, make_method_config
from regtta_bench.paper.settings import SETTINGS
from regtta_bench.paper.table_specs import CellSpec, RowSpec, TableSpec, make_table_spec
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.sweep.store import compute_key
from regtta_bench.tables.aggregate import CellValue, fill_table

FIELDS = {"R2": "r2", "RMSE": "rmse", "MAE": "mae", "accuracy": "accuracy"}


def cell_of(setting, name, column="mean", *, score="R2", protocol="offline", task="regression", options=None):
    where = SETTINGS[setting]
    return CellSpec(
        where, where.column_parts(column), score, protocol, make_method_config(where, name, options, task=task), task
    )


def make_table(*rows, columns=("first",)):
    """Return a table with rows ``(name, cell, ...)``."""
    return TableSpec("made", "Made", "made", columns, tuple(RowSpec(name, cells) for name, *cells in rows))


def by_method(setting, *names, **kind):
    return make_table(*((name, cell_of(setting, name, **kind)) for name in names))


def result_of(value, *, score="R2", protocol="offline", diverged=""):
    other = {"offline": "online", "online": "offline"}[protocol]
    return {
        "scores": {protocol: {FIELDS[score]: value}, other: {FIELDS[score]: -77.0}},
        "outputs": {},
        "diverged": diverged,
    }


def make_records(table_spec, plan, result):
    """Return a record for every run of the table with the result of ``result(spec)``; None omits the run."""
    lines = []
    for spec in plan.all_runs([table_spec]):
        found = result(spec)
        if found is not None:
            lines.append({"key": compute_key(spec.to_dict()), "specification": spec.to_dict(), "result": found})
    return lines


def fill_with(table_spec, plan, score_of, **kind):
    """Return the table filled with the values of ``score_of(method, source_seed, seed)``."""
    return fill_table(
        table_spec,
        plan,
        make_records(
            table_spec,
            plan,
            lambda spec: result_of(score_of(spec.method_config.method.name, spec.source.seed, spec.seed), **kind),
        ),
    )


def only(filled):
    ((value,),) = filled.values
    return value


def without_revision(lines, name):
    """Return the records as written before the method ``name`` was revised."""
    made = []
    for line in lines:
        about = json.loads(json.dumps(line["specification"]))
        if about["method"]["name"] == name:
            del about["method"]["revision"]
        made.append({"key": compute_key(about), "specification": about, "result": line["result"]})
    return made


def test_runs_of_an_older_revision_are_counted_as_outdated():
    table_spec, plan = by_method("svhn", "ssa", "rsd"), SweepPlan(2, 3)
    lines = make_records(table_spec, plan, lambda spec: result_of(0.5))
    (ssa,), (rsd,) = fill_table(table_spec, plan, without_revision(lines, "rsd")).values
    assert (ssa.mean, ssa.missing, ssa.outdated) == (0.5, 0, 0)
    assert (rsd.mean, rsd.runs, rsd.missing, rsd.outdated) == (None, 0, 6, 6)
    (_,), (both,) = fill_table(table_spec, plan, [*without_revision(lines, "rsd"), *lines]).values
    assert (both.mean, both.missing, both.outdated) == (0.5, 0, 0)
    (_,), (never,) = fill_table(
        table_spec, plan, [line for line in lines if line["specification"]["method"]["name"] != "rsd"]
    ).values
    assert (never.missing, never.outdated) == (6, 0)


# --- means and deviations ------------------------------------------------------------------------

SCORES = np.array([[0.51, 0.55, 0.53], [0.31, 0.2, 0.33], [0.74, 0.72, 0.8], [-1.5, 0.1, 0.2]])  # source models, seeds


def test_a_mean_is_over_seeds_and_source_models_and_the_deviation_over_source_models():
    filled = fill_with(by_method("svhn", "ssa"), SweepPlan(4, 3), lambda _, source, seed: SCORES[source, seed])
    value = only(filled)
    assert value.mean == pytest.approx(SCORES.mean())
    assert value.sd == pytest.approx(SCORES.mean(axis=1).std(ddof=1))
    assert dict(value.by_source) == pytest.approx(dict(enumerate(SCORES.mean(axis=1))))
    assert (value.runs, value.diverged, value.missing) == (12, 0, 0)
    assert (filled.sources, filled.seeds) == ({"svhn": 4}, 3)


def test_with_one_source_model_the_deviation_is_over_seeds():
    value = only(fill_with(by_method("svhn", "ssa"), SweepPlan(1, 3), lambda _, source, seed: SCORES[source, seed]))
    assert value.mean == pytest.approx(SCORES[0].mean())
    assert value.sd == pytest.approx(SCORES[0].std(ddof=1))


def test_one_run_has_no_deviation():
    assert only(fill_with(by_method("svhn", "ssa"), SweepPlan(1, 1), lambda *_: 0.5)).sd is None
    source = only(fill_with(by_method("svhn", "source"), SweepPlan(1, 3), lambda *_: 0.5))
    assert (source.mean, source.sd, source.runs) == (0.5, None, 1)


def test_the_deviation_of_the_source_model_is_over_source_models():
    value = only(fill_with(by_method("svhn", "source"), SweepPlan(3, 3), lambda _, source, seed: SCORES[source, 0]))
    assert value.mean == pytest.approx(SCORES[:3, 0].mean())
    assert value.sd == pytest.approx(statistics.stdev(SCORES[:3, 0]))
    assert value.runs == 3


def test_a_mean_over_parts_is_taken_before_the_deviation():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(13, 2, 3))  # corruptions, source models, seeds
    corruptions = list(SETTINGS["utkface"].parts)
    table_spec = by_method("utkface", "ssa")
    lines = make_records(
        table_spec,
        SweepPlan(2, 3),
        lambda spec: result_of(table[corruptions.index(spec.target), spec.source.seed, spec.seed]),
    )
    value = only(fill_table(table_spec, SweepPlan(2, 3), lines))
    assert value.mean == pytest.approx(table.mean())
    assert value.sd == pytest.approx(table.mean(axis=(0, 2)).std(ddof=1))
    assert value.runs == 13 * 2 * 3
    alone = only(fill_table(table_spec, SweepPlan(1, 3), lines))
    assert alone.sd == pytest.approx(table[:, 0].mean(axis=0).std(ddof=1))


def test_parts_of_biwi_differ_in_their_source_models():
    values = {variant: 0.1 * number for number, variant in enumerate(SETTINGS["biwi"].variants)}
    parts = SETTINGS["biwi"].parts
    table_spec = make_table(
        ("ssa", cell_of("biwi", "ssa"), *(cell_of("biwi", "ssa", column) for column in parts)),
        columns=("mean", *parts),
    )
    lines = make_records(table_spec, SweepPlan(1, 1), lambda spec: result_of(values[spec.source.variant]))
    ((mean, *each),) = fill_table(table_spec, SweepPlan(1, 1), lines).values
    assert [value.mean for value in each] == [pytest.approx(values[part.variant]) for part in parts.values()]
    assert mean.mean == pytest.approx(np.mean(list(values.values())))


def test_a_single_output_is_scored():
    # Yaw, roll and pitch, as the models predict them.
    outputs = {"female": [0.1, 0.2, 0.6], "male": [0.3, 0.5, 0.9]}
    columns = ("female_to_male_yaw", "female_to_male_roll", "female_to_male_pitch", "male_to_female_yaw", "mean")
    table_spec = make_table(("ssa", *(cell_of("biwi-multitask", "ssa", column) for column in columns)), columns=columns)

    def result(spec):
        scores = [{"r2": value} for value in outputs[spec.source.variant]]
        whole = {"r2": -50.0}
        return {
            "scores": {"offline": whole, "online": whole},
            "outputs": {"offline": scores, "online": [whole] * 3},
            "diverged": "",
        }

    filled = fill_table(table_spec, SweepPlan(1, 1), make_records(table_spec, SweepPlan(1, 1), result))
    found = [value.mean for value in filled.values[0]]
    assert found == [0.1, 0.2, 0.6, 0.3, pytest.approx(np.mean(list(outputs.values())))]
    assert filled.values[0][-1].runs == 2


@pytest.mark.parametrize("score", ["R2", "RMSE", "MAE"])
@pytest.mark.parametrize("protocol", ["offline", "online"])
def test_the_score_is_that_of_the_cell(score, protocol):
    kind = {"score": score, "protocol": protocol}
    assert only(fill_with(by_method("svhn", "ssa", **kind), SweepPlan(1, 1), lambda *_: 0.25, **kind)).mean == 0.25


def test_accuracy_is_in_percent():
    table_spec = by_method("svhn", "ssa", score="accuracy", task="classification")
    filled = fill_with(table_spec, SweepPlan(2, 1), lambda _, source, seed: [0.5, 0.625][source], score="accuracy")
    assert only(filled).mean == pytest.approx(56.25)
    assert only(filled).sd == pytest.approx(np.std([50.0, 62.5], ddof=1))


def test_dimensions_are_means_over_source_models_for_any_number_of_seeds():
    table_spec = make_table_spec("tab:subspace_dim", settings={"svhn": "svhn"})
    plan = SweepPlan(2, 3)
    measured = [
        {"valid": 353, "rank": 14, "correlation": 0.5, "validation": {}},
        {"valid": 360, "rank": 15, "correlation": 0.7, "validation": {}},
    ]
    lines = make_records(
        table_spec,
        plan,
        lambda spec: measured[spec.source.seed] if spec.method_config is None else result_of(0.1 * spec.source.seed),
    )
    ((valid, rank, *_),) = fill_table(table_spec, plan, lines).values
    assert (valid.mean, rank.mean, valid.runs) == (356.5, 14.5, 2)
    assert (valid.sd, rank.sd) == (pytest.approx(7 / math.sqrt(2)), pytest.approx(1 / math.sqrt(2)))
    alone = fill_table(table_spec, SweepPlan(1, 3), lines)
    assert (alone.values[0][0].mean, alone.values[0][0].sd) == (353, None)


def test_the_correlation_on_biwi_is_that_of_one_model():
    table_spec = make_table_spec("atab:correlation_table", settings={"biwi": "biwi"})
    lines = make_records(table_spec, SweepPlan(1, 1), lambda spec: {"correlation": 0.25, "valid": 1, "rank": 1})
    assert len(lines) == 1
    assert lines[0]["specification"]["source"]["variant"] == "female-pitch"
    assert only(fill_table(table_spec, SweepPlan(1, 1), lines)).mean == 0.25


# --- missing and diverged runs -------------------------------------------------------------------


def test_without_runs_there_is_no_value():
    filled = fill_table(by_method("svhn", "ssa"), SweepPlan(2, 3), [])
    assert only(filled) == CellValue({}, None, 0, 0, 6)
    assert only(filled).mean is None


def test_a_missing_run_leaves_no_mean():
    table_spec, plan = by_method("svhn", "ssa"), SweepPlan(2, 3)
    lines = make_records(
        table_spec, plan, lambda spec: None if (spec.source.seed, spec.seed) == (1, 2) else result_of(0.5 + spec.seed)
    )
    value = only(fill_table(table_spec, plan, lines))
    assert (value.mean, value.runs, value.missing, value.diverged) == (None, 5, 1, 0)


def test_a_missing_run_shared_by_all_seeds_counts_once():
    table_spec, plan = by_method("svhn", "source"), SweepPlan(2, 3)
    lines = make_records(table_spec, plan, lambda spec: None if spec.source.seed == 1 else result_of(0.5))
    value = only(fill_table(table_spec, plan, lines))
    assert (value.mean, value.runs, value.missing) == (None, 1, 1)


@pytest.mark.parametrize("plan", [SweepPlan(2, 2), SweepPlan(1, 4)], ids=["source models", "seeds"])
def test_diverged_runs_are_counted_and_leave_no_mean(plan):
    table_spec = by_method("svhn", "ssa")

    def result(spec):
        broken = (spec.source.seed, spec.seed) in ((0, 0), (0, 1))
        return result_of(None, diverged="the loss was not finite") if broken else result_of(0.5)

    value = only(fill_table(table_spec, plan, make_records(table_spec, plan, result)))
    assert (value.mean, value.runs, value.diverged, value.missing) == (None, 4, 2, 0)


def test_a_run_diverged_though_its_score_is_a_number():
    table_spec = by_method("svhn", "ssa")
    lines = make_records(table_spec, SweepPlan(1, 1), lambda _: result_of(0.5, diverged="a weight was not finite"))
    value = only(fill_table(table_spec, SweepPlan(1, 1), lines))
    assert (value.mean, value.diverged) == (None, 1)


def test_one_output_without_a_score_is_a_diverged_run_and_no_mean():
    table_spec = by_method("biwi-multitask", "ssa")

    def result(spec):
        return {
            "scores": {},
            "outputs": {"offline": [{"r2": 0.5}, {"r2": None}, {"r2": 0.5}]},
            "diverged": "",
        }

    value = only(fill_table(table_spec, SweepPlan(1, 1), make_records(table_spec, SweepPlan(1, 1), result)))
    assert (value.mean, value.diverged, value.runs) == (None, 2, 2)


def test_runs_of_other_plans_are_ignored():
    table_spec = by_method("svhn", "ssa")
    lines = make_records(table_spec, SweepPlan(5, 5), lambda spec: result_of(0.1 * spec.source.seed + 0.01 * spec.seed))
    value = only(fill_table(table_spec, SweepPlan(2, 1), lines))
    assert (value.runs, value.mean) == (2, pytest.approx(0.05))


def test_blank_cells_have_no_value():
    table_spec = make_table(("ssa", cell_of("svhn", "ssa"), None), columns=("first", "second"))
    filled = fill_table(table_spec, SweepPlan(1, 1), [])
    assert [value is None for value in filled.values[0]] == [False, True]
    assert [comparison is None for comparison in filled.comparisons[0]] == [False, True]


# --- the best ------------------------------------------------------------------------------------


def best_rows(filled):
    return [row.name for row, values in zip(filled.table_spec.rows, filled.values, strict=True) if values[0].best]


def ahead_tied_and_behind(name, source, seed):
    """Return scores in which SSA is ahead of BN-adapt by 0.1 on every source model, and equal to RSD on average."""
    gap = {"ssa": 0.5, "bn_adapt": 0.4, "rsd": 0.5 + (-1) ** source * 0.01, "oracle": 0.9, "source": 0.1, "ttt": 0.8}
    return gap[name] + 3 * source


def test_the_best_and_all_that_tie_with_it_are_marked():
    table_spec = by_method("svhn", "source", "bn_adapt", "rsd", "ssa")
    assert best_rows(fill_with(table_spec, SweepPlan(4, 1), ahead_tied_and_behind)) == ["rsd", "ssa"]


def test_the_oracle_and_unpaired_methods_are_never_best():
    table_spec = by_method("svhn", "source", "ttt", "bn_adapt", "ssa", "oracle")
    assert best_rows(fill_with(table_spec, SweepPlan(4, 1), ahead_tied_and_behind)) == ["ssa"]


@pytest.mark.parametrize("score", ["RMSE", "MAE"])
def test_the_smallest_error_is_best(score):
    table_spec = by_method("svhn", "source", "bn_adapt", "ssa", score=score)
    assert best_rows(fill_with(table_spec, SweepPlan(4, 1), ahead_tied_and_behind, score=score)) == ["source"]


def test_with_one_source_model_nothing_is_best():
    table_spec = by_method("svhn", "source", "bn_adapt", "ssa")
    assert best_rows(fill_with(table_spec, SweepPlan(1, 3), ahead_tied_and_behind)) == []


def test_a_single_method_is_not_best():
    assert best_rows(fill_with(by_method("svhn", "ssa"), SweepPlan(4, 1), ahead_tied_and_behind)) == []


def test_diverged_methods_are_excluded_from_the_best():
    table_spec, plan = by_method("svhn", "source", "bn_adapt", "ssa"), SweepPlan(4, 1)

    def result(spec):
        name = spec.method_config.method.name
        if name == "ssa" and spec.source.seed == 3:
            return result_of(9.0, diverged="the loss was not finite")
        return result_of(ahead_tied_and_behind(name, spec.source.seed, spec.seed))

    assert best_rows(fill_table(table_spec, plan, make_records(table_spec, plan, result))) == ["bn_adapt"]


def test_each_column_has_its_own_best():
    table_spec = make_table(
        *((name, cell_of("svhn", name), cell_of("svhn", name, score="RMSE")) for name in ("source", "ssa")),
        columns=("R2", "RMSE"),
    )
    scores = {"source": {"r2": 0.1, "rmse": 1.0}, "ssa": {"r2": 0.5, "rmse": 2.0}}

    def result(spec):
        return {"scores": {"offline": scores[spec.method_config.method.name]}, "outputs": {}, "diverged": ""}

    filled = fill_table(table_spec, SweepPlan(3, 1), make_records(table_spec, SweepPlan(3, 1), result))
    assert [[value.best for value in values] for values in filled.values] == [[False, True], [True, False]]


def test_dimensions_have_no_best():
    table_spec = make_table_spec("tab:subspace_dim", settings={"svhn": "svhn"})
    lines = make_records(
        table_spec,
        SweepPlan(3, 1),
        lambda spec: (
            {"valid": 3, "rank": 3}
            if spec.method_config is None
            else result_of(0.1 * len(spec.method_config.method.name))
        ),
    )
    filled = fill_table(table_spec, SweepPlan(3, 1), lines)
    assert [value.best for value in filled.values[0]] == [False, False, False, True, False]
    assert [comparison is None for comparison in filled.comparisons[0]] == [True, True, False, False, False]


# --- differences ---------------------------------------------------------------------------------


def line_of(filled, row):
    (comparisons,) = filled.comparison_tables
    return next(line for line in comparisons.rows if line.row == row)


def test_differences_are_paired_over_source_models():
    rng = np.random.default_rng(1)
    scores = {name: rng.normal(size=(4, 3)) for name in ("source", "ssa", "bn_adapt")}
    scores["source"][:] = scores["source"][:, :1]  # never learns, and so has one run on each
    table_spec = by_method("svhn", "source", "bn_adapt", "ssa")
    filled = fill_with(table_spec, SweepPlan(4, 3), lambda name, source, seed: scores[name][source, seed])
    means = {name: values.mean(axis=1) for name, values in scores.items()}
    line = line_of(filled, "bn_adapt")
    assert (line.to_ssa.pairs, line.to_source.pairs) == (4, 4)
    for difference, other in ((line.to_ssa, "ssa"), (line.to_source, "source")):
        differences = means["bn_adapt"] - means[other]
        assert difference.mean == pytest.approx(differences.mean())
        assert (
            differences.min() - 1e-12
            <= difference.low
            <= difference.mean
            <= difference.high
            <= differences.max() + 1e-12
        )
    assert filled.comparisons[1][0] == line


def test_the_spread_over_source_models_does_not_hide_a_difference_on_each():
    filled = fill_with(by_method("svhn", "source", "bn_adapt", "ssa"), SweepPlan(4, 1), ahead_tied_and_behind)
    line = line_of(filled, "bn_adapt")
    assert line.to_ssa.mean == pytest.approx(-0.1)
    assert line.to_ssa.high == pytest.approx(-0.1)
    assert line.to_ssa.is_significant
    assert only_sd(filled, 1) > 3


def only_sd(filled, row):
    return filled.values[row][0].sd


def test_a_method_has_no_difference_to_itself():
    filled = fill_with(by_method("svhn", "source", "ssa"), SweepPlan(2, 1), ahead_tied_and_behind)
    assert line_of(filled, "ssa").to_ssa is None
    assert line_of(filled, "ssa").to_source.mean == pytest.approx(0.4)
    assert line_of(filled, "source").to_source is None
    assert line_of(filled, "source").to_ssa.mean == pytest.approx(-0.4)


def test_ssa_with_other_options_is_compared_with_ssa_as_the_paper_has_it():
    cell = cell_of("svhn", "ssa", options={"lr": 0.01})
    table_spec, plan = make_table(("steep", cell)), SweepPlan(2, 1)
    lines = make_records(table_spec, plan, lambda spec: result_of(getattr(spec.method_config.method, "lr", 0.5)))
    line = line_of(fill_table(table_spec, plan, lines), "steep")
    assert line.to_ssa.mean == pytest.approx(0.01 - 0.001)
    assert line.to_source.mean == pytest.approx(0.01 - 0.5)


def test_methods_with_their_own_source_models_are_not_paired():
    its_source = CellSpec(
        SETTINGS["svhn"],
        SETTINGS["svhn"].column_parts("mean"),
        "R2",
        "offline",
        MethodConfig(NoAdaptation(), "rotation"),
    )
    table_spec = make_table(
        ("ttt", cell_of("svhn", "ttt")), ("its source", its_source), ("ssa", cell_of("svhn", "ssa"))
    )
    filled = fill_with(table_spec, SweepPlan(3, 1), ahead_tied_and_behind)
    for row in ("ttt", "its source"):
        line = line_of(filled, row)
        assert line.own_source
        assert (line.to_ssa.pairs, line.to_source.pairs) == (0, 0)
    assert not line_of(filled, "ssa").own_source


def test_diverged_and_missing_methods_are_not_compared():
    table_spec, plan = by_method("svhn", "bn_adapt", "rsd", "ssa"), SweepPlan(3, 1)

    def result(spec):
        name = spec.method_config.method.name
        if spec.source.seed == 2 and name == "rsd":
            return None
        broken = spec.source.seed == 2 and name == "bn_adapt"
        score = ahead_tied_and_behind(name, spec.source.seed, spec.seed)
        return result_of(score, diverged="the loss was not finite" if broken else "")

    filled = fill_table(table_spec, plan, make_records(table_spec, plan, result))
    for row in ("bn_adapt", "rsd"):
        assert line_of(filled, row).to_ssa.pairs == 0
        assert math.isnan(line_of(filled, row).to_ssa.mean)
    assert line_of(filled, "ssa").to_source.pairs == 3


def test_one_source_model_gives_a_difference_without_an_interval():
    line = line_of(fill_with(by_method("svhn", "bn_adapt"), SweepPlan(1, 2), ahead_tied_and_behind), "bn_adapt")
    assert line.to_ssa.mean == pytest.approx(-0.1)
    assert math.isnan(line.to_ssa.low)
    assert not line.to_ssa.is_significant


def test_methods_are_judged_by_the_first_score_over_most_parts_in_each_setting():
    def titles(label, **chosen):
        filled = fill_table(make_table_spec(label, **chosen), SweepPlan(1, 1), [])
        return [(one.title, len(one.rows)) for one in filled.comparison_tables]

    assert titles("tab:svhn") == [("R2 offline, svhn", 10)]
    assert titles("tab:utkface_mae") == [("MAE offline, utkface", 10)]
    assert titles("tab:svhn_online") == [("R2 online, svhn", 9)]
    assert titles("tab:ablation_subspace_weight") == [
        (f"R2 offline, {name}", 4) for name in ("svhn", "utkface", "biwi", "california")
    ]
    assert titles("atab:correlation_table") == []


def test_methods_are_judged_by_the_mean_over_corruptions_and_not_by_the_first():
    table_spec = make_table(
        ("bn_adapt", cell_of("utkface", "bn_adapt", "fog"), cell_of("utkface", "bn_adapt")), columns=("fog", "mean")
    )

    def result(spec):
        return result_of(1.0 if (spec.method_config.method.name, spec.target) == ("bn_adapt", "fog") else 0.0)

    filled = fill_table(table_spec, SweepPlan(2, 1), make_records(table_spec, SweepPlan(2, 1), result))
    assert line_of(filled, "bn_adapt").to_ssa.mean == pytest.approx(1 / 13)
    assert filled.comparisons[0][0].to_ssa.mean == 1.0


def test_comparisons_are_named_by_column_where_columns_are_methods():
    sweep = fill_table(make_table_spec("atab:california_raw_ablation_k"), SweepPlan(1, 1), [])
    assert [line.row for line in sweep.comparison_tables[0].rows] == [
        "1",
        "5",
        "10",
        "25",
        "50",
        "75",
        "100",
        "10 (ours)",
    ]
    dimensions = fill_table(make_table_spec("tab:subspace_dim", settings={"svhn": "svhn"}), SweepPlan(1, 1), [])
    assert [line.row for line in dimensions.comparison_tables[0].rows] == [
        "R² (↑): Source",
        "R² (↑): Naive feature alignment",
        "R² (↑): SSA (ours)",
    ]


def test_the_reference_ssa_is_described_with_its_options():
    def named(label):
        return fill_table(make_table_spec(label), SweepPlan(1, 1), []).comparison_tables[0].ssa

    assert named("tab:svhn") == "SSA.from_paper(k=100)"
    assert named("tab:california") == "SSA.from_paper(k=10, batch_norm='source')"
    assert named("atab:classification_accuracy_mnist") == "SSA.from_paper(k=100, weighting=False)"
