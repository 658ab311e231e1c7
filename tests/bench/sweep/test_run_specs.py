import dataclasses
import hashlib
import json
import pickle

import pytest

from regtta.errors import FileError, OptionError
from regtta.guards import MinBatchSize
from regtta.methods import METHODS, SSA, NoAdaptation, create_method
from regtta_bench.paper.experiments import EXPERIMENTS
from regtta_bench.paper.method_configs import MethodConfig, make_method_config
from regtta_bench.paper.settings import SETTINGS
from regtta_bench.paper.table_specs import CellSpec, make_table_spec
from regtta_bench.sweep import run_specs as specs_module
from regtta_bench.sweep.run_specs import (
    FULL_SCALE,
    QUICK_SCALE,
    RunSpec,
    Scale,
    SweepPlan,
    check_weights,
    reference_cells,
    weights_digest,
)
from regtta_bench.sweep.store import compute_key
from regtta_bench.training import Recipe

PLAN = SweepPlan()


def cell_of(setting, name, column="mean", *, task="regression", options=None, score="R2"):
    where = SETTINGS[setting]
    return CellSpec(
        where, where.column_parts(column), score, "offline", make_method_config(where, name, options, task=task), task
    )


def paper_cell(label, row, column):
    return next(c for c in make_table_spec(label).cells() if (c.paper.row, c.paper.column) == (row, column))


def only_run(cell, plan=PLAN, source_seed=0, seed=0):
    ((spec, _),) = plan.cell_runs(cell, source_seed, seed)
    return spec


SPEC = only_run(cell_of("svhn", "ssa"))


# --- keys ----------------------------------------------------------------------------------------


def test_tables_share_the_run_of_default_ssa():
    places = [
        ("tab:svhn", "ssa", "R2"),
        ("tab:svhn", "ssa", "MAE"),
        ("tab:svhn_online", "ssa", "RMSE"),
        ("tab:ablation_n_dims", "k=100", "svhn"),
        ("atab:raw-feat_alignment_k", "ssa(k=100)", "svhn"),
        ("tab:ablation_subspace_weight", "ssa(weighting=true)", "svhn"),
        ("atab:kl-vs-2wd_svhn", "ssa(metric=kl)", "R2"),
        ("atab:lr_variation_svhn", "R2", "lr=0.001"),
        ("atab:bs_variation_svhn", "R2", "batch_size=64"),
        ("tab:subspace_dim", "svhn", "ssa"),
    ]
    specs = {only_run(paper_cell(*place), source_seed=2, seed=1) for place in places}
    assert len(specs) == 1
    assert len({compute_key(spec.to_dict()) for spec in specs}) == 1


def test_tables_share_source_models():
    dimensions = only_run(paper_cell("tab:subspace_dim", "svhn", "valid_dimensions"))
    assert dimensions == only_run(paper_cell("atab:correlation_table", "correlation", "svhn"))
    assert dimensions == only_run(
        paper_cell("atab:classification_subspace_dim", "svhn", "regression_subspace_dimensions")
    )
    assert dimensions.source == SPEC.source
    classifier = paper_cell("atab:classification_subspace_dim", "svhn", "classification_valid_dimensions")
    accuracy = paper_cell("atab:classification_accuracy_mnist", "ssa", "accuracy")
    assert only_run(classifier).source == only_run(accuracy).source != SPEC.source


def test_protocols_and_scores_share_one_run():
    plan = SweepPlan(seeds=1)
    runs = plan.all_runs([make_table_spec("tab:utkface"), make_table_spec("tab:utkface_mae")])
    assert set(plan.all_runs([make_table_spec("tab:utkface_online")])) < set(runs)
    assert runs == plan.all_runs([make_table_spec("tab:utkface")])


SOURCE_CHANGES = {
    "data": "other",
    "model": "other",
    "objective": "dann",
    "recipe": Recipe(epochs=99),
    "seed": 1,
    "variant": "female",
    "against": "mnist",
    "start": "0123456789abcdef",
    "rows": 32,
}
RECIPE_CHANGES = {
    "epochs": 7,
    "batch_size": 7,
    "lr": 0.7,
    "weight_decay": 0.7,
    "crop_padding": 7,
    "photo_side": 7,
    "colour_jitter": 0.7,
    "resized": 7,
    "mixed_precision": True,
    "optimizer": "adamw",
    "schedule": "one_cycle",
}
RUN_CHANGES = {"target": "other", "seed": 1, "target_rows": 16}
METHOD_CHANGES = {
    "k": 25,
    "metric": "w2",
    "weighting": False,
    "unbiased": False,
    "clip": True,
    "lr": 0.7,
    "optimizer": "sgd",
    "batch_norm": "source",
    "trainable": "all",
    "steps": 2,
    "prior": 7,
    "window": 7,
    "free_output": True,
    "restore": 0.7,
    "bn_momentum": 0.7,
}


def test_every_field_changes_the_key():
    replace = dataclasses.replace
    source, method_config = SPEC.source, SPEC.method_config
    assert set(SOURCE_CHANGES) == {field.name for field in dataclasses.fields(source)}
    assert set(RECIPE_CHANGES) == {field.name for field in dataclasses.fields(source.recipe)}
    assert set(METHOD_CHANGES) == {field.name for field in dataclasses.fields(method_config.method)}
    assert {*RUN_CHANGES, "source", "method_config"} == {field.name for field in dataclasses.fields(SPEC)}
    changed = [
        SPEC,
        *(replace(SPEC, **{name: value}) for name, value in RUN_CHANGES.items()),
        *(replace(SPEC, source=replace(source, **{name: value})) for name, value in SOURCE_CHANGES.items()),
        *(
            replace(SPEC, source=replace(source, recipe=replace(source.recipe, **{name: value})))
            for name, value in RECIPE_CHANGES.items()
        ),
        replace(SPEC, method_config=replace(method_config, batch_size=8)),
        *(
            replace(SPEC, method_config=replace(method_config, method=replace(method_config.method, **{name: value})))
            for name, value in METHOD_CHANGES.items()
        ),
        replace(SPEC, method_config=replace(method_config, method=NoAdaptation())),
        RunSpec(source),
    ]
    assert len({compute_key(spec.to_dict()) for spec in changed}) == len(changed)


def test_runs_and_keys_survive_pickling():
    table_specs = [table_spec for one in EXPERIMENTS.values() for table_spec in one.table_specs({})]
    specs = SweepPlan(source_seeds=1, seeds=1).all_runs(table_specs)
    methods = {spec.method_config.method.name for spec in specs if spec.method_config is not None}
    assert {"source", "ssa", "ttt", "tent+ssa", "variance_minimization", "oracle"} <= methods
    back = pickle.loads(pickle.dumps(specs))
    assert back == specs
    assert [compute_key(spec.to_dict()) for spec in back] == [compute_key(spec.to_dict()) for spec in specs]
    assert len({compute_key(spec.to_dict()) for spec in specs}) == len(specs)
    for spec in specs:
        assert json.loads(json.dumps(spec.to_dict(), allow_nan=False)) == spec.to_dict()


def test_measurements_on_a_source_model_share_its_key():
    spec = only_run(paper_cell("tab:subspace_dim", "svhn", "valid_dimensions"), source_seed=2, seed=1)
    assert (spec.target, spec.method_config, spec.seed) == ("", None, 0)
    assert spec.to_dict() == {"source": spec.source.to_dict()}
    assert spec.source.seed == 2


def method_key(method):
    return compute_key(
        dataclasses.replace(SPEC, method_config=dataclasses.replace(SPEC.method_config, method=method)).to_dict()
    )


def test_a_revision_changes_only_the_keys_of_its_method(monkeypatch):
    several = create_method("ssa+0.5*feature_alignment")
    before = {name: method_key(create_method(name)) for name in METHODS}
    of_sum = method_key(several)
    assert "revision" not in json.dumps(SPEC.to_dict())
    monkeypatch.setattr(SSA, "revision", 2)
    after = {name: method_key(create_method(name)) for name in METHODS}
    assert {name for name in METHODS if after[name] != before[name]} == {"ssa"}
    assert SPEC.to_dict()["method"]["revision"] == 2
    assert method_key(several) != of_sum
    described = dataclasses.replace(
        SPEC, method_config=dataclasses.replace(SPEC.method_config, method=several)
    ).to_dict()["method"]
    assert [term.get("revision") for term in described["terms"]] == [2, None]
    monkeypatch.setattr(SSA, "revision", 0)
    assert {name: method_key(create_method(name)) for name in METHODS} == before


def test_corrected_methods_have_a_revision():
    revisions = {name: cls.revision for name, cls in METHODS.items()}
    assert {name for name, revision in revisions.items() if revision} == {"ttt", "variance_minimization", "rsd"}


def test_a_training_revision_changes_the_keys_of_its_models_and_runs():
    plain, dann = (only_run(cell_of("svhn", name)) for name in ("source", "dann"))
    assert "revision" not in plain.source.to_dict()
    assert dann.to_dict()["source"]["revision"] == 1
    unrevised = {name: value for name, value in dann.source.to_dict().items() if name != "revision"}
    assert dann.source.key == compute_key(dann.to_dict()["source"])
    assert dann.source.key != compute_key(unrevised)


# --- runs of a cell ------------------------------------------------------------------------------


def test_a_mean_over_parts_has_one_run_per_part():
    runs = PLAN.cell_runs(cell_of("utkface", "ssa"), 0, 1)
    assert [spec.target for spec, _ in runs] == list(SETTINGS["utkface"].parts)
    assert [part for _, part in runs] == list(SETTINGS["utkface"].parts.values())
    assert {spec.seed for spec, _ in runs} == {1}
    assert len({spec.source for spec, _ in runs}) == 1


def test_biwi_has_one_source_model_per_angle_and_gender_unless_multitask():
    apart = PLAN.cell_runs(cell_of("biwi", "ssa"), 0, 0)
    together = PLAN.cell_runs(cell_of("biwi-multitask", "ssa"), 0, 0)
    assert len({spec.source for spec, _ in apart}) == len({spec for spec, _ in apart}) == 6
    assert len({spec.source for spec, _ in together}) == len({spec for spec, _ in together}) == 2
    assert sorted(part.output for _, part in together) == [0, 0, 1, 1, 2, 2]


def test_the_seed_sets_the_order_and_the_methods_random_draws():
    drawn = only_run(cell_of("svhn", "variance_minimization"), seed=2)
    assert (drawn.seed, drawn.method_config.method.seed) == (2, 2)
    assert only_run(cell_of("svhn", "ssa"), seed=2).seed == 2


@pytest.mark.parametrize("name", ["source", "dann"])
def test_methods_without_learning_run_once_per_source_model(name):
    cell = cell_of("svhn", name)
    assert len({only_run(cell, seed=seed) for seed in range(3)}) == 1
    assert len({only_run(cell, source_seed=seed) for seed in range(3)}) == 3


def test_source_models_have_the_objective_of_the_method():
    objectives = {name: only_run(cell_of("svhn", name)).source.objective for name in ("source", "ttt", "dann", "ssa")}
    assert objectives == {"source": "regression", "ttt": "rotation", "dann": "dann", "ssa": "regression"}
    assert only_run(cell_of("svhn", "ssa", task="classification")).source.objective == "classification"


def test_only_dann_trains_against_each_target():
    corrupted = PLAN.cell_runs(cell_of("utkface", "dann"), 0, 0)
    assert [spec.source.against for spec, _ in corrupted] == list(SETTINGS["utkface"].parts)
    assert {spec.source.against for spec, _ in PLAN.cell_runs(cell_of("utkface", "ttt"), 0, 0)} == {""}


# --- plans ---------------------------------------------------------------------------------------


def test_settings_have_a_default_number_of_source_models():
    assert list(PLAN.source_seed_range(SETTINGS["california"])) == [0, 1, 2, 3, 4]
    assert list(PLAN.source_seed_range(SETTINGS["utkface"])) == [0]
    assert list(SweepPlan(source_seeds=2).source_seed_range(SETTINGS["california"])) == [0, 1]


def test_a_plan_has_every_run_once():
    # Eight methods that learn on 3 source models with 2 orders each, the source model and DANN once on each.
    table = make_table_spec("tab:svhn")
    learning = [row.name for row in table.rows if row.name not in ("source", "dann")]
    specs = SweepPlan(source_seeds=3, seeds=2).all_runs([table, table])
    assert len(specs) == len(learning) * 3 * 2 + 2 * 3
    assert len(set(specs)) == len(specs)
    kinds = {spec.source for spec in specs}
    assert len(kinds) == 3 * 3  # the shared models, TTT's and DANN's


def test_reference_runs_are_planned_even_without_a_cell():
    sweep = make_table_spec("atab:lr_variation_svhn", settings={"svhn": "svhn"})
    specs = SweepPlan(source_seeds=1, seeds=1).all_runs([sweep])
    assert sorted(spec.method_config.method.name for spec in specs) == ["source", *["ssa"] * 5]
    readings = make_table_spec("atab:california_ablation_k", options={"lr": 1e-4}, reading="gentle")
    specs = SweepPlan(source_seeds=1, seeds=1).all_runs([readings])
    assert len(specs) == 7 + 2
    assert only_run(cell_of("california", "ssa")) in specs


def test_reference_cells_are_the_papers_ssa_and_the_source_model():
    cell = paper_cell("atab:bs_variation_svhn", "R2", "batch_size=8")
    ssa, source = reference_cells(cell)
    assert ssa == dataclasses.replace(cell, method_config=MethodConfig(SSA.from_paper(k=100)), paper=None)
    assert source == dataclasses.replace(cell, method_config=MethodConfig(NoAdaptation()), paper=None)
    assert {reference.group for reference in (ssa, source)} == {cell.group}
    classifiers = reference_cells(paper_cell("atab:classification_accuracy_mnist", "tent", "accuracy"))
    assert [reference.method_config.objective for reference in classifiers] == ["classification"] * 2
    assert classifiers[0].method_config.method.weighting is False
    assert reference_cells(paper_cell("tab:subspace_dim", "svhn", "valid_dimensions")) == ()


# --- scales --------------------------------------------------------------------------------------


def test_the_full_scale_changes_nothing():
    for setting in SETTINGS.values():
        assert FULL_SCALE.scale_recipe(setting.recipe) == setting.recipe
        for name in ("ssa", "variance_minimization", "tent+ssa", "feature_alignment"):
            assert FULL_SCALE.scale_method_config(make_method_config(setting, name)) == make_method_config(
                setting, name
            )


def test_a_scale_only_reduces_sizes():
    scale = Scale(train_rows=32, target_rows=16, epochs=2, batch_size=8, photo_side=64, views=4, k=6)
    assert scale.scale_recipe(Recipe(photo_side=224, lr=0.3)) == Recipe(photo_side=64, lr=0.3, epochs=2, batch_size=8)
    assert scale.scale_recipe(Recipe()).photo_side == 0
    svhn = SETTINGS["svhn"]
    assert scale.scale_method_config(make_method_config(svhn, "ssa")) == make_method_config(
        svhn, "ssa", {"k": 6, "batch_size": 8}
    )
    small = make_method_config(svhn, "ssa", {"k": 3, "batch_size": 4})
    assert scale.scale_method_config(small) == small
    every = make_method_config(svhn, "feature_alignment", {"k": None})
    assert scale.scale_method_config(every).method.k is None
    assert scale.scale_method_config(make_method_config(svhn, "feature_alignment")).method.k == 6
    assert scale.scale_method_config(make_method_config(svhn, "variance_minimization")).method.views == 4
    total = scale.scale_method_config(make_method_config(svhn, "tent+ssa")).method
    assert (total.terms[0], total.terms[1].k, total.name) == (make_method_config(svhn, "tent").method, 6, "tent+ssa")
    automatic = MethodConfig(SSA(k="auto"))
    assert scale.scale_method_config(automatic).method == SSA(k="auto")


def test_scaled_runs_have_other_keys_and_source_models():
    full, quick = (
        only_run(cell_of("utkface", "ssa", "fog")),
        only_run(cell_of("utkface", "ssa", "fog"), SweepPlan(scale=QUICK_SCALE)),
    )
    assert (quick.source.rows, quick.target_rows) == (QUICK_SCALE.train_rows, QUICK_SCALE.target_rows)
    assert (full.source.rows, full.target_rows) == (0, 0)
    assert quick.source.key != full.source.key
    measured = only_run(paper_cell("tab:subspace_dim", "svhn", "valid_dimensions"), SweepPlan(scale=QUICK_SCALE))
    assert (measured.source.rows, measured.target_rows) == (QUICK_SCALE.train_rows, 0)


# --- weights -------------------------------------------------------------------------------------


def test_the_digest_of_the_weights_is_part_of_the_source_model(tmp_path):
    path = tmp_path / "imagenet.pth"
    path.write_bytes(b"weights")
    mark = hashlib.sha256(b"weights").hexdigest()[:16]
    assert weights_digest(path) == mark
    plan = SweepPlan(weights={"resnet50": path})
    assert only_run(cell_of("utkface", "ssa", "fog"), plan).source.start == mark
    assert only_run(cell_of("svhn", "ssa"), plan).source.start == "random"
    path.write_bytes(b"others")
    assert only_run(cell_of("utkface", "ssa", "fog"), plan).source.start != mark


def test_unreadable_weights_raise(tmp_path):
    for path in (tmp_path / "absent.pth", tmp_path):
        with pytest.raises(FileError, match="cannot be read"):
            check_weights({"resnet50": path})
    with pytest.raises(FileError, match="resnet26 does not support pretrained .* resnet50, vit_b16"):
        check_weights({"resnet26": tmp_path / "any.pth"})
    path = tmp_path / "there.pth"
    path.write_bytes(b"weights")
    check_weights({"resnet50": path, "vit_b16": path})


def test_a_weights_file_is_read_once(tmp_path):
    path = tmp_path / "weights.pth"
    path.write_bytes(b"weights")
    before = specs_module._file_digest.cache_info().misses
    runs = SweepPlan(weights={"resnet50": path}).all_runs(EXPERIMENTS["biwi"].table_specs({}))
    assert len(runs) > 100
    assert {run.source.start for run in runs} == {weights_digest(path)}
    assert specs_module._file_digest.cache_info().misses == before + 1


# --- guards and ranges of seeds ------------------------------------------------------------------


def test_default_guards_are_no_part_of_the_key_and_others_are():
    plain = dataclasses.replace(SPEC, method_config=MethodConfig(SSA()))
    safe = dataclasses.replace(SPEC, method_config=MethodConfig(SSA(), guards="safe"))
    assert "guards" not in plain.to_dict()
    assert {key: value for key, value in safe.to_dict().items() if not key.startswith("guards")} == plain.to_dict()
    assert safe.to_dict()["guards"] == "safe"


def test_a_changed_threshold_of_a_preset_changes_the_key(monkeypatch):
    safe = dataclasses.replace(SPEC, method_config=MethodConfig(SSA(), guards="safe"))
    before = compute_key(safe.to_dict())
    monkeypatch.setattr(specs_module, "GUARD_PRESETS", {"safe": (MinBatchSize(17),)})
    assert compute_key(safe.to_dict()) != before


def test_unknown_guards_are_an_error():
    with pytest.raises(OptionError, match="the guards"):
        MethodConfig(SSA(), guards="none")


def test_a_range_of_seeds_is_limited_to_the_source_models_of_the_setting():
    five, one = SETTINGS["svhn-subset"], SETTINGS["utkface"]
    plan = SweepPlan(source_seeds=range(1, 9))
    assert plan.source_seed_range(five) == range(1, 5)
    assert len(plan.source_seed_range(one)) == 0
