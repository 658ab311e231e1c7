import re
import tomllib
from importlib.resources import files

import pytest

from regtta_bench.paper import LABELS, NAMES, numbers_of, paper_table
from regtta_bench.paper.experiments import EXPERIMENTS
from regtta_bench.paper.method_configs import arm_of
from regtta_bench.paper.settings import SETTINGS, Part
from regtta_bench.paper.table_specs import Cell, Layout, Row, layout_of, restricted

SUBSET = {"svhn": "svhn-subset"}
OF_THE_SOURCE = {"valid_dimensions", "subspace_dimensions", "correlation"}


@pytest.fixture(scope="module")
def layouts():
    """Those of every experiment."""
    return {name: one.layouts({}) for name, one in EXPERIMENTS.items()}


def printed():
    """Every table's file, as a user could read it."""
    folder = files("regtta_bench.paper") / "tables"
    return {table["label"]: table for table in (tomllib.loads(path.read_text()) for path in folder.iterdir())}


def place_of(cell):
    return (cell.paper.label, cell.paper.row, cell.paper.column)


# --- every number of the paper -------------------------------------------------------------------


def test_every_number_of_the_paper_is_in_the_experiment_of_its_name(layouts):
    tables = printed()
    assert set(tables) == set(LABELS)
    for label, table in tables.items():
        (layout,) = [one for one in layouts[table["name"]] if one.label == label and "reading" not in one.title]
        expected = [
            (label, row["name"], column["name"], str(cell[0] if isinstance(cell, list) else cell))
            for row in table["rows"]
            for column, cell in zip(table["columns"], row["cells"], strict=True)
        ]
        cells = [cell for cell in layout.cells() if cell.paper is not None]
        found = [(*place_of(cell), _plain(cell.paper.cell)) for cell in cells]
        assert [(*place, _number(text)) for *place, text in expected] == [(*place, n) for *place, n in found]


def _plain(cell):
    return "-" if cell.diverged else cell.mean


def _number(text):
    return text if text == "-" else float(text)


def test_no_other_experiment_shows_a_number_but_what_belongs_to_california_and_the_subset(layouts):
    for name in NAMES:
        foreign = {layout.label for layout in layouts[name] if paper_table(layout.label).name != name}
        expected = {"tab:subspace_dim", "atab:california_ablation_k", "atab:california_raw_ablation_k"}
        assert foreign == (expected if name == "california" else set())
    on_california = {cell.setting.name for layout in layouts["california"] for cell in layout.cells()}
    assert on_california == {"california"}


def test_the_subset_shows_every_number_of_the_paper_on_svhn_with_its_small_model_once(layouts):
    expected = [
        (label, number.row, number.column)
        for label in LABELS
        for number in numbers_of(paper_table(label))
        if number.dataset == "svhn" and paper_table(label).name != "vit"
    ]
    found = [place_of(cell) for layout in layouts["svhn-subset"] for cell in layout.cells() if cell.paper is not None]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("label", LABELS)
def test_rows_and_columns_are_in_the_papers_order(label):
    table, layout = paper_table(label), layout_of(label)
    assert len(layout.columns) == len(table.columns)
    assert [row.cells[0].paper.row for row in layout.rows] == [row.name for row in table.rows]
    for row in layout.rows:
        assert [cell.paper.column for cell in row.cells] == [column.name for column in table.columns]
    assert (layout.label, layout.notes) == (label, table.notes)
    assert layout.title == table.caption.removesuffix(".")


def test_columns_and_rows_of_a_data_set_go_by_the_settings_name():
    assert layout_of("tab:ablation_n_dims").columns == ("svhn", "utkface", "biwi")
    assert [row.name for row in layout_of("tab:subspace_dim").rows] == ["svhn", "utkface", "biwi", "california"]
    dimensions = layout_of("atab:classification_subspace_dim")
    assert [row.name for row in dimensions.rows] == ["svhn", "cifar10c", "utkface", "biwi", "california"]
    assert [row.name for row in layout_of("atab:svhn_subspace_dims").rows] == ["svhn-vit"]
    assert layout_of("tab:svhn").columns == ("R² (↑)", "RMSE (↓)", "MAE (↓)")


# --- what is run for them ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paper_cells():
    return [cell for label in LABELS for cell in layout_of(label).cells()]


def test_a_cell_runs_what_its_number_says(paper_cells):
    assert len(paper_cells) == sum(1 for label in LABELS for _ in numbers_of(paper_table(label)))
    for cell in paper_cells:
        number = cell.paper
        assert cell.score == number.score
        assert cell.protocol == ("source" if number.score in OF_THE_SOURCE else number.protocol)
        if number.score in OF_THE_SOURCE:
            assert cell.arm is None
            continue
        assert cell.arm.method.name == ("source" if number.method == "dann" else number.method)
        options = dict(number.options)
        assert cell.arm.batch_size == options.pop("batch_size", 64)
        assert {name: getattr(cell.arm.method, name) for name in options} == options


def test_a_cell_runs_where_its_number_was_made(paper_cells):
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


def test_the_naive_alignment_beside_the_dimensions_takes_all_of_them_and_elsewhere_those_of_its_setting():
    def dimensions(label, columns):
        cells = [cell for cell in layout_of(label).cells() if cell.arm and cell.arm.method.name == "feature_alignment"]
        return {cell.setting.name: cell.arm.method.k for cell in cells if cell.paper.column in columns}

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
    rows = [row for row in layout_of(label).rows if row.cells[0].arm.method.name == method]
    for column in range(3):
        assert [row.cells[column].arm.method.k for row in rows] == ks
    assert all(cell.arm.method.clip is False for row in rows for cell in row.cells)


@pytest.mark.parametrize(
    ("reading", "trainable", "lr"),
    [("text", "affine", 1e-3), ("released", "extractor", 1e-4), ("affine 1e-4", "affine", 1e-4)],
)
def test_california_is_swept_in_three_readings(layouts, reading, trainable, lr):
    tables = {one.label: one for one in layouts["california"] if one.title.endswith(f", reading: {reading}")}
    assert set(tables) == {"atab:california_ablation_k", "atab:california_raw_ablation_k"}
    ks = [1, 5, 10, 25, 50, 75, 100]
    subspace, raw = (list(tables[f"atab:california_{kind}ablation_k"].cells()) for kind in ("", "raw_"))
    assert [(cell.arm.method.name, cell.arm.method.k) for cell in subspace] == [("ssa", k) for k in ks]
    naive = [("feature_alignment", k) for k in ks]
    assert [(cell.arm.method.name, cell.arm.method.k) for cell in raw] == [*naive, ("ssa", 10)]
    for cell in (*subspace, *raw):
        assert (cell.arm.method.trainable, cell.arm.method.lr) == (trainable, lr)
        assert cell.arm.method.batch_norm == "source"


def test_the_papers_text_is_the_reading_of_tables_that_name_none(layouts):
    text = next(one for one in layouts["california"] if one.name == "california_ablation_k-text")
    plain = next(one for one in layouts["k"] if one.name == "california_ablation_k")
    assert list(text.cells()) == list(plain.cells())
    released = next(one for one in layouts["k"] if one.name == "california_ablation_k-released")
    assert {cell.arm for cell in released.cells()}.isdisjoint(cell.arm for cell in plain.cells())


def test_options_of_a_reading_reach_alignment_alone():
    table = layout_of("tab:california", options={"lr": 0.5}, reading="steep")
    rates = {row.name: getattr(row.cells[0].arm.method, "lr", None) for row in table.rows}
    assert [name for name, lr in rates.items() if lr == 0.5] == ["ssa"]


# --- the subset ----------------------------------------------------------------------------------


def test_the_subset_never_goes_by_the_name_of_the_whole(layouts):
    for layout in layouts["svhn-subset"]:
        words = [layout.name, layout.title, *layout.columns, *(row.name for row in layout.rows)]
        for text in words:
            assert "SVHN" not in text
            assert "svhn" not in text.replace("svhn-subset", ""), text


def test_the_subset_is_where_everything_of_its_experiment_runs(layouts):
    cells = [cell for layout in layouts["svhn-subset"] for cell in layout.cells()]
    assert {cell.setting.name for cell in cells} == {"svhn-subset"}
    whole = [cell for layout in layouts["svhn"] for cell in layout.cells()]
    assert {cell.setting.name for cell in whole} == {"svhn"}


def test_data_sets_that_are_not_named_are_left_out():
    table = layout_of("tab:ablation_subspace_weight", settings=SUBSET)
    assert table.columns == ("svhn-subset",)
    assert [len(row.cells) for row in table.rows] == [1] * 4
    assert [row.cells[0].paper.cell.mean for row in table.rows] == [0.333, 0.508, 0.511, 0.406]


# --- rows more, and less -------------------------------------------------------------------------


def test_rows_more_have_the_first_rows_cells_with_another_arm_and_no_number():
    mine = arm_of(SETTINGS["california"], "ssa", {"k": 3})
    plain = layout_of("tab:california")
    table = layout_of("tab:california", more={"mine": {"california": mine}, "elsewhere": {"svhn": mine}})
    assert [row.name for row in table.rows] == [*(row.name for row in plain.rows), "mine"]
    assert [cell.arm for cell in table.rows[-1].cells] == [mine] * 3
    assert [cell.paper for cell in table.rows[-1].cells] == [None] * 3
    assert [cell.group for cell in table.rows[-1].cells] == [cell.group for cell in plain.rows[0].cells]


def test_cells_of_one_kind_can_be_compared_and_others_not():
    r2, rmse, mae = (cell.group for cell in layout_of("tab:svhn").rows[0].cells)
    assert len({r2, rmse, mae}) == 3
    assert [row.cells[0].group for row in layout_of("tab:svhn").rows] == [r2] * 10
    assert layout_of("tab:svhn_online").rows[0].cells[0].group != r2
    assert layout_of("tab:svhn", settings=SUBSET).rows[0].cells[0].group != r2
    assert layout_of("atab:vit_svhn_table").rows[0].cells[0].group != r2
    fog, mean = (layout_of("tab:utkface").rows[0].cells[index] for index in (11, 13))
    assert (fog.parts, fog.group == mean.group) == ((Part("fog"),), False)


def test_a_table_is_cut_to_some_settings():
    whole = layout_of("tab:ablation_subspace_weight")
    cut = restricted(whole, ["biwi", "svhn"])
    assert cut.columns == ("svhn", "biwi")
    assert [row.name for row in cut.rows] == [row.name for row in whole.rows]
    for before, after in zip(whole.rows, cut.rows, strict=True):
        assert after.cells == (before.cells[0], before.cells[2])
    by_row = restricted(layout_of("tab:subspace_dim"), ["california"])
    assert [row.name for row in by_row.rows] == ["california"]
    assert len(by_row.columns) == 5
    assert restricted(whole, ["cifar10c"]) is None
    assert restricted(whole, ["svhn", "utkface", "biwi", "california"]) == whole


def test_a_column_left_with_nothing_goes_and_a_gap_in_a_kept_one_stays():
    def cell(name):
        return Cell(SETTINGS[name], SETTINGS[name].parts_of("mean"), "R2", "offline", arm_of(SETTINGS[name], "ssa"))

    rows = (
        Row("first", (cell("svhn"), cell("biwi"), None)),
        Row("second", (None, cell("biwi"), cell("svhn"))),
        Row("third", (None, cell("biwi"), None)),
    )
    cut = restricted(Layout("name", "title", "label", ("a", "b", "c"), rows), ["svhn"])
    assert cut.columns == ("a", "c")
    assert [(row.name, row.cells) for row in cut.rows] == [
        ("first", (cell("svhn"), None)),
        ("second", (None, cell("svhn"))),
    ]


def test_names_of_tables_can_be_file_names(layouts):
    for mine in layouts.values():
        assert all(re.fullmatch(r"[\w.-]+", layout.name) for layout in mine)
        assert len({layout.name for layout in mine}) == len(mine)
