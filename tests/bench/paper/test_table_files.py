"""Tables of the paper without its LaTeX source: shapes, means, and selected numbers."""

import dataclasses
from collections import Counter
from importlib.resources import files

import pytest

from regtta.errors import OptionError
from regtta.methods import METHODS
from regtta_bench.paper import EXPERIMENT_NAMES, TABLE_LABELS, paper_numbers, paper_slips, paper_table

SCORES = {"R2", "RMSE", "MAE", "accuracy", "correlation", "valid_dimensions", "subspace_dimensions"}
CORRUPTIONS = {
    *("defocus_blur", "motion_blur", "zoom_blur", "contrast", "elastic_transform", "jpeg_compression", "pixelate"),
    *("gaussian_noise", "impulse_noise", "shot_noise", "brightness", "fog", "snow"),
}
PAIRS = {f"{pair}_{angle}" for pair in ("female_to_male", "male_to_female") for angle in ("pitch", "roll", "yaw")}
# Printed means that are not the rounded mean of the printed entries, yet agree with entries rounded themselves.
ROUNDED_BEFORE = {
    ("tab:biwi-kinect", "feature_restoration"),
    ("atab:biwi-kinect_multi-task", "oracle"),
    ("atab:classification_accuracy_cifar10c", "oracle"),
    ("atab:bs_variation_utkface", "batch_size=256"),
    ("tab:utkface_mae", "oracle"),
    ("tab:biwi-kinect_mae", "ttt"),
    ("tab:biwi-kinect_mae", "feature_restoration"),
}
# Means over the columns that did not diverge; in the other tables such rows have no mean.
OVER_THE_REST = {("tab:biwi-kinect_mae", "prototype"), ("tab:biwi-kinect_mae", "rsd")}

TABLES = [paper_table(label) for label in TABLE_LABELS]
WITH_MEANS = [table for table in TABLES if table.columns[-1].name == "mean"]


def unit(text: str) -> float:
    """Return one unit of the last printed digit."""
    return 10.0 ** -len(text.partition(" ")[0].partition(".")[2])


def test_the_number_of_tables_and_cells():
    assert len(TABLES) == 31
    cells = [cell for table in TABLES for row in table.rows for cell in row.cells]
    assert len(cells) == 1354
    assert sum(cell.diverged for cell in cells) == 40
    assert sum(cell.sd is not None for cell in cells) == 347


def test_every_file_is_a_table_and_every_name_has_one():
    folder = files("regtta_bench.paper").joinpath("tables")
    assert len([entry for entry in folder.iterdir() if entry.name.endswith(".toml")]) == len(TABLE_LABELS)
    assert [table.label for table in TABLES] == list(TABLE_LABELS)
    assert {table.name for table in TABLES} == set(EXPERIMENT_NAMES)
    assert Counter(table.name for table in TABLES) == Counter(
        dict.fromkeys(EXPERIMENT_NAMES, 1)
        | {"subspace": 2, "k": 4, "metric": 3, "vit": 2, "mae": 2, "online": 3}
        | {"sensitivity-lr": 3, "sensitivity-batch": 3}
    )


@pytest.mark.parametrize("table", TABLES, ids=TABLE_LABELS)
def test_every_row_has_every_column(table):
    assert all(len(row.cells) == len(table.columns) for row in table.rows)
    for places in (table.columns, [row.header for row in table.rows]):
        names = [header.name for header in places]
        assert len(set(names)) == len(names)
    assert table.caption.endswith(".")
    assert all(note.endswith(".") for note in table.notes)


@pytest.mark.parametrize("name", EXPERIMENT_NAMES)
def test_every_number_has_its_method_data_set_and_score(name):
    for number in paper_numbers(name):
        assert number.score in SCORES
        assert number.protocol in ("offline", "online", "source")
        assert number.dataset in ("svhn", "california", "utkface", "biwi", "cifar10", "cifar10c")
        assert number.method in (None, "dann", "tent+ssa", *METHODS)
        assert (number.method is None) == (number.score in ("correlation", "valid_dimensions", "subspace_dimensions"))
        assert number.cell.diverged == (number.cell.mean is None) == (number.cell.text == "-")


def test_numbers_within_a_table_differ_in_their_keys():
    for name in EXPERIMENT_NAMES:
        meanings = Counter(
            (n.label, n.column, n.method, n.dataset, n.score, *sorted(n.options.items())) for n in paper_numbers(name)
        )
        assert set(meanings.values()) == {1}


@pytest.mark.parametrize("table", WITH_MEANS, ids=lambda table: table.label)
def test_means_are_over_all_corruptions_or_all_pairs(table):
    names = {column.name for column in table.columns[:-1]}
    assert names == (PAIRS if table.dataset == "biwi" else CORRUPTIONS)


@pytest.mark.parametrize("table", WITH_MEANS, ids=lambda table: table.label)
def test_means_are_the_means_of_their_rows(table):
    for row in table.rows:
        *entries, mean = row.cells
        kept = [cell for cell in entries if cell.mean is not None]
        if len(kept) < len(entries) and (table.label, row.name) not in OVER_THE_REST:
            assert mean.diverged
            continue
        error = abs(sum(cell.mean for cell in kept) / len(kept) - mean.mean)
        own = unit(mean.text) / 2
        inherited = sum(unit(cell.text) / 2 for cell in kept) / len(kept)
        assert error < own + inherited + 1e-9
        assert (error > own + 1e-9) == ((table.label, row.name) in ROUNDED_BEFORE)


@pytest.mark.parametrize(
    ("label", "row", "column", "text"),
    [
        ("tab:svhn", "ssa", "R2", "0.511 ± 0.03"),
        ("tab:svhn", "source", "R2", "0.406"),
        ("tab:svhn", "variance_minimization", "R2", "-685.1 ± 27.63"),
        ("tab:svhn", "oracle", "MAE", "0.575 ± 0.00"),
        ("tab:california", "ssa", "R2", "0.639 ± 0.00"),
        ("tab:california", "rsd", "RMSE", "-"),
        ("tab:utkface", "ssa", "mean", "0.731"),
        ("tab:utkface", "source", "contrast", "-3.906"),
        ("tab:biwi-kinect", "prototype", "female_to_male_pitch", "-318 ± 0.00"),
        ("tab:biwi-kinect", "ssa", "male_to_female_yaw", "0.575 ± 0.00"),
        ("tab:subspace_dim", "biwi", "subspace_dimensions", "34.5"),
        ("tab:ablation_subspace_weight", "ssa(weighting=false)", "utkface", "0.728 ± 0.16"),
        ("atab:correlation_table", "correlation", "utkface", "0.917"),
        ("tab:ablation_n_dims", "k=25", "svhn", "0.538"),
        ("atab:california_raw_ablation_k", "R2", "k=50", "0.584"),
        ("atab:kl-vs-2wd_svhn", "feature_alignment(metric=l1)", "RMSE", "2.337 ± 0.11"),
        ("atab:svhn_subspace_dims", "svhn", "regression_subspace_dimensions", "503"),
        ("atab:vit_svhn_table", "variance_minimization", "R2", "-1009 ± 11.8"),
        ("atab:biwi-kinect_multi-task", "source", "female_to_male_yaw", "0.628"),
        ("atab:biwi-kinect_multi-task", "variance_minimization", "male_to_female_roll", "-0.000 ± 0.02"),
        ("atab:classification_subspace_dim", "cifar10", "classification_subspace_dimensions", "86"),
        ("atab:classification_accuracy_mnist", "tent+ssa", "accuracy", "80.69 ± 0.52"),
        ("atab:classification_accuracy_cifar10c", "tent", "fog", "67.41"),
        ("atab:lr_variation_svhn", "R2", "lr=0.01", "0.212 ± 0.21"),
        ("atab:bs_variation_utkface", "batch_size=8", "mean", "0.668"),
        ("tab:utkface_mae", "ssa", "mean", "6.81"),
        ("tab:biwi-kinect_mae", "rsd", "mean", "0.121 ± 0.00"),
        ("tab:svhn_online", "ssa", "R2", "0.488 ± 0.01"),
        ("tab:utkface_online", "oracle", "mean", "0.752"),
        ("tab:biwi-kinect_online", "prototype", "female_to_male_pitch", "-317.740 ± 0.02"),
    ],
)
def test_selected_numbers(label, row, column, text):
    assert str(paper_table(label).cell(row, column)) == text


def test_rmse_and_r2_are_consistent():
    """R² = 1 − RMSE²/variance, with one variance of the labels for all rows of a data set."""
    for label in ("tab:svhn", "tab:california", "atab:kl-vs-2wd_svhn", "atab:vit_svhn_table", "tab:svhn_online"):
        table = paper_table(label)
        variance = 1.186 if label == "tab:california" else 8.387
        for row in table.rows:
            if not row.cells[0].diverged:
                expected = 1 - table.cell(row.name, "RMSE").mean ** 2 / variance
                # the mean of squares is above the square of the mean by the deviation's square
                assert row.cells[0].mean == pytest.approx(expected, rel=0.002, abs=0.006)


def test_every_slip_quotes_the_tables():
    slips = paper_slips()
    assert len({slip.name for slip in slips}) == len(slips) == 9
    for slip in slips:
        assert slip.text.endswith(".")
        for header in slip.places:
            table = paper_table(header.label)
            headings = {column.name: column.label for column in table.columns}
            printed = headings[header.column] if header.row is None else str(table.cell(header.row, header.column))
            assert header.printed == printed
        assert len({header.printed.split(" ± ")[0] for header in slip.places}) > 1


def test_swapped_columns_hold_the_numbers_of_the_main_table():
    main, swapped = paper_table("tab:biwi-kinect"), paper_table("atab:kl-vs-2wd_biwi-kinect")
    for column in PAIRS:
        assert main.cell("ssa", column) == swapped.cell("ssa(metric=kl)", column)
        assert main.cell("source", column) == swapped.cell("source", column)
    labels = {column.name: column.label for column in swapped.columns}
    assert labels["male_to_female_roll"] == "Male → Female: Yaw"
    assert labels["male_to_female_yaw"] == "Male → Female: Roll"


def test_tables_are_read_only():
    table = paper_table("atab:lr_variation_svhn")
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.rows[0].cells[0].mean = 1.0
    with pytest.raises(TypeError):
        table.columns[0].options["lr"] = 1.0
    assert table.columns[0].options == {"lr": 0.0001}


def test_unknown_tables_rows_and_columns_raise():
    with pytest.raises(OptionError, match=r"no table 'tab:svnh'.*Did you mean 'tab:svhn'"):
        paper_table("tab:svnh")
    with pytest.raises(OptionError, match=r"tab:svhn has no row 'sssa'.*Did you mean 'ssa'"):
        paper_table("tab:svhn").cell("sssa", "R2")
    with pytest.raises(OptionError, match=r"tab:svhn has no column 'RMS'; it has \['R2', 'RMSE', 'MAE'\].*'RMSE'"):
        paper_table("tab:svhn").cell("ssa", "RMS")
