import re
import tomllib
from importlib.resources import files

import pytest

from regtta_bench.paper import EXPERIMENT_NAMES, TABLE_LABELS, paper_table, table_numbers
from regtta_bench.paper.experiments import EXPERIMENTS
from regtta_bench.paper.method_configs import make_method_config
from regtta_bench.paper.settings import SETTINGS, Part
from regtta_bench.paper.table_specs import CellSpec, RowSpec, TableSpec, make_table_spec, restrict_table

SUBSET = {"svhn": "svhn-subset"}
SOURCE_SCORES = {"valid_dimensions", "subspace_dimensions", "correlation"}


@pytest.fixture(scope="module")
def table_specs():
    """Those of every experiment."""
    return {name: one.table_specs({}) for name, one in EXPERIMENTS.items()}


def printed():
    """Every table's file, as a user could read it."""
    folder = files("regtta_bench.paper") / "tables"
    return {table["label"]: table for table in (tomllib.loads(path.read_text()) for path in folder.iterdir())}


def place_of(cell):
    return (cell.paper.label, cell.paper.row, cell.paper.column)


# --- every number of the paper -------------------------------------------------------------------


def test_every_number_of_the_paper_is_in_the_experiment_of_its_name(table_specs):
    tables = printed()
    assert set(tables) == set(TABLE_LABELS)
    for label, table in tables.items():
        (table_spec,) = [one for one in table_specs[table["name"]] if one.label == label and "reading" not in one.title]
        expected = [
            (label, row["name"], column["name"], str(cell[0] if isinstance(cell, list) else cell))
            for row in table["rows"]
            for column, cell in zip(table["columns"], row["cells"], strict=True)
        ]
        cells = [cell for cell in table_spec.cells() if cell.paper is not None]
        found = [(*place_of(cell), _plain(cell.paper.cell)) for cell in cells]
        assert [(*header, _number(text)) for *header, text in expected] == [(*header, n) for *header, n in found]


def _plain(cell):
    return "-" if cell.diverged else cell.mean


def _number(text):
    return text if text == "-" else float(text)


def test_only_california_and_the_subset_repeat_numbers_of_other_experiments(table_specs):
    for name in EXPERIMENT_NAMES:
        foreign = {table_spec.label for table_spec in table_specs[name] if paper_table(table_spec.label).name != name}
        expected = {"tab:subspace_dim", "atab:california_ablation_k", "atab:california_raw_ablation_k"}
        assert foreign == (expected if name == "california" else set())
    on_california = {cell.setting.name for table_spec in table_specs["california"] for cell in table_spec.cells()}
    assert on_california == {"california"}


def test_the_subset_shows_every_number_of_the_paper_on_svhn_with_its_small_model_once(table_specs):
    expected = [
        (label, number.row, number.column)
        for label in TABLE_LABELS
        for number in table_numbers(paper_table(label))
        if number.dataset == "svhn" and paper_table(label).name != "vit"
    ]
    found = [
        place_of(cell)
        for table_spec in table_specs["svhn-subset"]
        for cell in table_spec.cells()
        if cell.paper is not None
    ]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_rows_and_columns_are_in_the_papers_order(label):
    table, table_spec = paper_table(label), make_table_spec(label)
    assert len(table_spec.columns) == len(table.columns)
    assert [row.cells[0].paper.row for row in table_spec.rows] == [row.name for row in table.rows]
    for row in table_spec.rows:
        assert [cell.paper.column for cell in row.cells] == [column.name for column in table.columns]
    assert (table_spec.label, table_spec.notes) == (label, table.notes)
    assert table_spec.title == table.caption.removesuffix(".")


def test_columns_and_rows_of_a_data_set_have_the_name_of_the_setting():
    assert make_table_spec("tab:ablation_n_dims").columns == ("svhn", "utkface", "biwi")
    assert [row.name for row in make_table_spec("tab:subspace_dim").rows] == ["svhn", "utkface", "biwi", "california"]
    dimensions = make_table_spec("atab:classification_subspace_dim")
    assert [row.name for row in dimensions.rows] == ["svhn", "cifar10c", "utkface", "biwi", "california"]
    assert [row.name for row in make_table_spec("atab:svhn_subspace_dims").rows] == ["svhn-vit"]
    assert make_table_spec("tab:svhn").columns == ("R² (↑)", "RMSE (↓)", "MAE (↓)")


# --- runs of the cells ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paper_cells():
    return [cell for label in TABLE_LABELS for cell in make_table_spec(label).cells()]


def test_a_cell_runs_the_method_of_its_number(paper_cells):
    assert len(paper_cells) == sum(1 for label in TABLE_LABELS for _ in table_numbers(paper_table(label)))
    for cell in paper_cells:
        number = cell.paper
        assert cell.score == number.score
        assert cell.protocol == ("source" if number.score in SOURCE_SCORES else number.protocol)
        if number.score in SOURCE_SCORES:
            assert cell.method_config is None
            continue
        assert cell.method_config.method.name == ("source" if number.method == "dann" else number.method)
        options = dict(number.options)
        assert cell.method_config.batch_size == options.pop("batch_size", 64)
        assert {name: getattr(cell.method_config.method, name) for name in options} == options


def test_a_cell_runs_in_the_setting_of_its_number(paper_cells):
    for cell in paper_cells:
        number = cell.paper
        expected = {
            "vit": "svhn-vit",
            "biwi-multitask": "biwi-multitask",
        }.get(number.name, {"cifar10": "cifar10c"}.get(number.dataset, number.dataset))
        assert cell.setting is SETTINGS[expected]
        assert cell.task == ("classification" if "classification" in (number.name + number.column) else "regression")


def test_a_cell_is_one_part_or_the_mean_over_all(paper_cells):
    for cell in paper_cells:
        parts = cell.setting.parts
        if cell.paper.label == "atab:correlation_table" and cell.setting.name == "biwi":
            assert cell.parts == (Part("male", "female-pitch"),)
        elif cell.paper.column in parts:
            assert cell.parts == (parts[cell.paper.column],)
        else:
            assert cell.parts == tuple(parts.values())
    assert {len(cell.parts) for cell in paper_cells} == {1, 6, 13}


def test_naive_alignment_uses_all_dimensions_in_the_table_of_dimensions_only():
    def dimensions(label, columns):
        cells = [
            cell
            for cell in make_table_spec(label).cells()
            if cell.method_config and cell.method_config.method.name == "feature_alignment"
        ]
        return {cell.setting.name: cell.method_config.method.k for cell in cells if cell.paper.column in columns}

    everything = dict.fromkeys(["svhn", "utkface", "biwi", "california"])
    assert dimensions("tab:subspace_dim", ["feature_alignment"]) == everything
    ablated = dimensions("tab:ablation_subspace_weight", everything)
    assert ablated == {"svhn": 100, "utkface": 100, "biwi": 100, "california": 10}


@pytest.mark.parametrize(
    ("label", "method", "ks"),
    [
        ("tab:ablation_n_dims", "ssa", [10, 25, 50, 75, 100, 200, 400, 1000, 2048]),
        ("atab:raw-feat_alignment_k", "feature_alignment", [10, 25, 50, 75, 100, 200, 400, 1000, 2048]),
    ],
)
def test_the_sweeps_over_k_have_the_papers_values(label, method, ks):
    rows = [row for row in make_table_spec(label).rows if row.cells[0].method_config.method.name == method]
    for column in range(3):
        assert [row.cells[column].method_config.method.k for row in rows] == ks
    assert all(cell.method_config.method.clip is False for row in rows for cell in row.cells)


@pytest.mark.parametrize(
    ("reading", "trainable", "lr"),
    [("text", "affine", 1e-3), ("released", "extractor", 1e-4), ("affine 1e-4", "affine", 1e-4)],
)
def test_california_is_swept_in_three_readings(table_specs, reading, trainable, lr):
    tables = {one.label: one for one in table_specs["california"] if one.title.endswith(f", reading: {reading}")}
    assert set(tables) == {"atab:california_ablation_k", "atab:california_raw_ablation_k"}
    ks = [1, 5, 10, 25, 50, 75, 100]
    subspace, raw = (list(tables[f"atab:california_{kind}ablation_k"].cells()) for kind in ("", "raw_"))
    assert [(cell.method_config.method.name, cell.method_config.method.k) for cell in subspace] == [
        ("ssa", k) for k in ks
    ]
    naive = [("feature_alignment", k) for k in ks]
    assert [(cell.method_config.method.name, cell.method_config.method.k) for cell in raw] == [*naive, ("ssa", 10)]
    for cell in (*subspace, *raw):
        assert (cell.method_config.method.trainable, cell.method_config.method.lr) == (trainable, lr)
        assert cell.method_config.method.batch_norm == "source"


def test_tables_without_a_reading_use_the_papers_text(table_specs):
    text = next(one for one in table_specs["california"] if one.name == "california_ablation_k-text")
    plain = next(one for one in table_specs["k"] if one.name == "california_ablation_k")
    assert list(text.cells()) == list(plain.cells())
    released = next(one for one in table_specs["k"] if one.name == "california_ablation_k-released")
    assert {cell.method_config for cell in released.cells()}.isdisjoint(cell.method_config for cell in plain.cells())


def test_options_of_a_reading_apply_to_alignment_only():
    table = make_table_spec("tab:california", options={"lr": 0.5}, reading="steep")
    rates = {row.name: getattr(row.cells[0].method_config.method, "lr", None) for row in table.rows}
    assert [name for name, lr in rates.items() if lr == 0.5] == ["ssa"]


# --- the subset ----------------------------------------------------------------------------------


def test_the_subset_is_never_named_like_the_full_data_set(table_specs):
    for table_spec in table_specs["svhn-subset"]:
        words = [table_spec.name, table_spec.title, *table_spec.columns, *(row.name for row in table_spec.rows)]
        for text in words:
            assert "SVHN" not in text
            assert "svhn" not in text.replace("svhn-subset", ""), text


def test_all_cells_of_the_subset_experiment_run_on_the_subset(table_specs):
    cells = [cell for table_spec in table_specs["svhn-subset"] for cell in table_spec.cells()]
    assert {cell.setting.name for cell in cells} == {"svhn-subset"}
    whole = [cell for table_spec in table_specs["svhn"] for cell in table_spec.cells()]
    assert {cell.setting.name for cell in whole} == {"svhn"}


def test_data_sets_without_a_setting_are_dropped():
    table = make_table_spec("tab:ablation_subspace_weight", settings=SUBSET)
    assert table.columns == ("svhn-subset",)
    assert [len(row.cells) for row in table.rows] == [1] * 4
    assert [row.cells[0].paper.cell.mean for row in table.rows] == [0.333, 0.508, 0.511, 0.406]


# --- rows more, and less -------------------------------------------------------------------------


def test_extra_rows_have_the_cells_of_the_first_row_without_published_numbers():
    mine = make_method_config(SETTINGS["california"], "ssa", {"k": 3})
    plain = make_table_spec("tab:california")
    table = make_table_spec("tab:california", extra_rows={"mine": {"california": mine}, "elsewhere": {"svhn": mine}})
    assert [row.name for row in table.rows] == [*(row.name for row in plain.rows), "mine"]
    assert [cell.method_config for cell in table.rows[-1].cells] == [mine] * 3
    assert [cell.paper for cell in table.rows[-1].cells] == [None] * 3
    assert [cell.group for cell in table.rows[-1].cells] == [cell.group for cell in plain.rows[0].cells]


def test_only_cells_of_one_group_are_comparable():
    r2, rmse, mae = (cell.group for cell in make_table_spec("tab:svhn").rows[0].cells)
    assert len({r2, rmse, mae}) == 3
    assert [row.cells[0].group for row in make_table_spec("tab:svhn").rows] == [r2] * 10
    assert make_table_spec("tab:svhn_online").rows[0].cells[0].group != r2
    assert make_table_spec("tab:svhn", settings=SUBSET).rows[0].cells[0].group != r2
    assert make_table_spec("atab:vit_svhn_table").rows[0].cells[0].group != r2
    fog, mean = (make_table_spec("tab:utkface").rows[0].cells[index] for index in (11, 13))
    assert (fog.parts, fog.group == mean.group) == ((Part("fog"),), False)


def test_a_table_is_restricted_to_settings():
    whole = make_table_spec("tab:ablation_subspace_weight")
    cut = restrict_table(whole, ["biwi", "svhn"])
    assert cut.columns == ("svhn", "biwi")
    assert [row.name for row in cut.rows] == [row.name for row in whole.rows]
    for before, after in zip(whole.rows, cut.rows, strict=True):
        assert after.cells == (before.cells[0], before.cells[2])
    by_row = restrict_table(make_table_spec("tab:subspace_dim"), ["california"])
    assert [row.name for row in by_row.rows] == ["california"]
    assert len(by_row.columns) == 5
    assert restrict_table(whole, ["cifar10c"]) is None
    assert restrict_table(whole, ["svhn", "utkface", "biwi", "california"]) == whole


def test_restriction_drops_empty_columns_and_keeps_blank_cells():
    def cell(name):
        return CellSpec(
            SETTINGS[name],
            SETTINGS[name].column_parts("mean"),
            "R2",
            "offline",
            make_method_config(SETTINGS[name], "ssa"),
        )

    rows = (
        RowSpec("first", (cell("svhn"), cell("biwi"), None)),
        RowSpec("second", (None, cell("biwi"), cell("svhn"))),
        RowSpec("third", (None, cell("biwi"), None)),
    )
    cut = restrict_table(TableSpec("name", "title", "label", ("a", "b", "c"), rows), ["svhn"])
    assert cut.columns == ("a", "c")
    assert [(row.name, row.cells) for row in cut.rows] == [
        ("first", (cell("svhn"), None)),
        ("second", (None, cell("svhn"))),
    ]


def test_table_names_are_valid_file_names(table_specs):
    for mine in table_specs.values():
        assert all(re.fullmatch(r"[\w.-]+", table_spec.name) for table_spec in mine)
        assert len({table_spec.name for table_spec in mine}) == len(mine)
