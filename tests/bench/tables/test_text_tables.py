import dataclasses
import math

from helpers.filled_tables import filled_svhn, make_value, with_comparisons
from regtta_bench.paper import paper_slips, paper_table
from regtta_bench.paper.experiments import EXPERIMENTS
from regtta_bench.paper.table_specs import make_table_spec
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.tables import make_text_tables
from regtta_bench.tables.aggregate import CellValue, Comparison, fill_table
from regtta_bench.tables.comparison import Difference


def texts_of(table, name):
    """Return the texts of our row called ``name``."""
    (line,) = [line for line in table.rows if line.name == name and not line.from_paper]
    return [text.text for text in line.cells]


# --- texts ---------------------------------------------------------------------------------------


def test_a_value_is_shown_with_its_deviation():
    (table, *_) = make_text_tables(filled_svhn())
    assert texts_of(table, "ssa") == ["0.511 ± 0.027"] * 3
    assert texts_of(table, "oracle") == ["-12.346 ± 1.500"] * 3
    assert texts_of(table, "source") == ["0.400"] * 3


def test_diverged_and_missing_runs_are_stated():
    (table, *_) = make_text_tables(filled_svhn())
    assert texts_of(table, "dann") == ["diverged"] * 3
    assert texts_of(table, "ttt") == ["diverged 2 of 6"] * 3
    assert texts_of(table, "bn_adapt") == ["not run"] * 3
    assert texts_of(table, "prototype") == ["2 missing"] * 3


def test_outdated_runs_are_stated():
    (table, *_) = make_text_tables(filled_svhn())
    assert not any("revision" in note for note in table.notes)
    outcomes = {"rsd": CellValue({}, None, 0, 0, 6, outdated=6), "oracle": CellValue({}, None, 0, 0, 6, outdated=2)}
    filled = filled_svhn()
    values = tuple(
        tuple(outcomes.get(row.name, value) for value in values)
        for row, values in zip(filled.table_spec.rows, filled.values, strict=True)
    )
    (table, *_) = make_text_tables(dataclasses.replace(filled, values=values))
    assert texts_of(table, "rsd") == ["outdated"] * 3
    assert texts_of(table, "oracle") == ["not run"] * 3
    assert any(note.startswith("Outdated: made by an older revision") for note in table.notes)


def test_digits_follow_the_score():
    table_spec = make_table_spec("atab:classification_accuracy_mnist")
    filled = dataclasses.replace(fill_table(table_spec, SweepPlan(1, 1), []), values=((make_value(71.2345, 0.5),),) * 5)
    assert texts_of(make_text_tables(filled)[0], "ssa") == ["71.23 ± 0.50"]
    table_spec = make_table_spec("tab:subspace_dim", settings={"svhn": "svhn"})
    row = (make_value(353.0, None), make_value(14.46, 0.5), *[make_value(0.5)] * 3)
    filled = dataclasses.replace(fill_table(table_spec, SweepPlan(1, 1), []), values=(row,))
    assert texts_of(make_text_tables(filled)[0], "svhn")[:2] == ["353", "14.5 ± 0.5"]


def test_the_papers_numbers_are_below_ours_as_printed():
    (table, *_) = make_text_tables(filled_svhn())
    for row in paper_table("tab:svhn").rows:
        index = next(i for i, line in enumerate(table.rows) if line.name == row.name and not line.from_paper)
        below = table.rows[index + 1]
        assert (below.name, below.from_paper) == ("paper", True)
        assert [text.text for text in below.cells] == [str(cell) for cell in row.cells]
        assert not any(text.bold for text in below.cells)


def test_additional_rows_have_no_row_of_the_paper():
    table_spec = EXPERIMENTS["svhn"].table_specs({})[0]
    (table, *_) = make_text_tables(fill_table(table_spec, SweepPlan(1, 1), []))
    names = [line.name for line in table.rows]
    assert names[-4:] == ["feature_alignment", "ttt: its source", "ssa, clipped at the rank", "oracle, all parameters"]
    assert names.count("paper") == 10


def test_only_the_best_is_bold():
    (table, *_) = make_text_tables(filled_svhn())
    bold = {line.name for line in table.rows if any(text.bold for text in line.cells)}
    assert bold == {"ssa"}


def test_a_smoke_run_is_stated_in_the_title():
    assert (
        make_text_tables(filled_svhn(), smoke=True)[0].title
        == "SMOKE RUN, not a result: SVHN to MNIST, scores by method"
    )
    assert make_text_tables(filled_svhn())[0].title == "SVHN to MNIST, scores by method"


# --- differences ---------------------------------------------------------------------------------


def test_differences_have_an_interval_and_are_bold_if_it_excludes_zero():
    lines = (
        Comparison("bn_adapt", Difference(-0.0142, -0.017, -0.012, 5), Difference(0.5, -0.25, 1.0, 5)),
        Comparison("ssa", None, Difference(0.25, 0.1, 0.5, 5)),
        Comparison("ttt", Difference(math.nan, math.nan, math.nan, 0), None, own_source=True),
        Comparison("rsd", Difference(math.nan, math.nan, math.nan, 0), Difference(0.125, math.nan, math.nan, 1)),
    )
    (_, table) = make_text_tables(with_comparisons(*lines))
    assert table.title == "Differences in R2 offline, svhn"
    assert table.columns == ("less ssa [95%]", "less source [95%]")
    assert [[(text.text, text.bold) for text in line.cells] for line in table.rows] == [
        [("-0.014 [-0.017, -0.012]", True), ("+0.500 [-0.250, +1.000]", False)],
        [("itself", False), ("+0.250 [+0.100, +0.500]", True)],
        [("own source models", False)] * 2,
        [("–", False), ("+0.125", False)],
    ]
    assert table.notes[0].startswith("Paired over 5 source models")
    assert table.notes[1] == "ssa: SSA(k=100)."


def test_a_single_source_model_is_noted():
    line = Comparison("bn_adapt", Difference(0.5, math.nan, math.nan, 1), Difference(0.5, math.nan, math.nan, 1))
    (_, table) = make_text_tables(with_comparisons(line))
    assert table.notes[0].startswith("One source model")
    assert not any(text.bold for line in table.rows for text in line.cells)


def test_source_models_without_runs_are_noted():
    (_, table) = make_text_tables(fill_table(make_table_spec("tab:svhn"), SweepPlan(2, 3), []))
    assert {text.text for line in table.rows for text in line.cells} == {"–", "itself", "own source models"}
    assert not any("One source model" in note for note in table.notes)


# --- notes ---------------------------------------------------------------------------------------


def table_notes(filled):
    return make_text_tables(filled)[0].notes


def test_notes_state_the_number_of_models_and_seeds():
    assert table_notes(filled_svhn())[0] == (
        "Source models: 2 (svhn); 3 adaptation seeds on each. ± is the standard deviation over source models."
    )
    assert table_notes(filled_svhn(sources=1, seeds=1))[0] == (
        "Source models: 1 (svhn); 1 adaptation seed on each. ± is the standard deviation over adaptation seeds."
    )


def test_the_note_names_the_kind_of_deviation():
    # Three source models of SVHN and five of California, but one of UTKFace and of each kind of Biwi Kinect.
    first = table_notes(fill_table(make_table_spec("tab:ablation_subspace_weight"), SweepPlan(), []))[0]
    assert "3 (svhn), 1 (utkface), 1 (biwi), 5 (california)" in first
    assert "over source models" in first
    assert "over adaptation seeds" in first


def test_notes_name_the_papers_table_and_its_exceptions():
    text = " ".join(table_notes(filled_svhn()))
    assert "tab:svhn" in text
    assert "TTT and DANN train source models of their own" in text
    assert "The oracle learns from the target's labels" in text
    assert "Bold" in text
    sweep = " ".join(table_notes(fill_table(make_table_spec("atab:lr_variation_svhn"), SweepPlan(), [])))
    for absent in ("TTT", "oracle", "Bold", "subset"):
        assert absent not in sweep


def test_the_tables_own_notes_are_kept():
    notes = table_notes(fill_table(make_table_spec("tab:utkface_mae"), SweepPlan(), []))
    assert set(paper_table("tab:utkface_mae").notes) < set(notes)


def test_the_subset_is_noted():
    whole, subset = filled_svhn(), filled_svhn(settings={"svhn": "svhn-subset"})
    assert any("subset of SVHN" in note for note in table_notes(subset))
    assert not any("subset of SVHN" in note for note in table_notes(whole))


def test_slips_of_the_paper_are_noted_once():
    slips = {slip.name: slip.text for slip in paper_slips()}
    notes = table_notes(fill_table(make_table_spec("tab:subspace_dim"), SweepPlan(), []))
    said = [note.removeprefix("A slip of the paper's: ") for note in notes if note.startswith("A slip of the paper's")]
    expected = {"utkface-source-mean", "utkface-default-run", "svhn-default-run", "biwi-default-run"}
    assert sorted(said) == sorted(slips[name] for name in (*expected, "utkface-naive-alignment"))
    assert not any(
        "slip" in note for note in table_notes(fill_table(make_table_spec("tab:california"), SweepPlan(), []))
    )
