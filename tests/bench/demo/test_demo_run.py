import io
import json
import re

import matplotlib
import pytest
from matplotlib.image import imread
from PIL import Image
from rich.console import Console

from regtta.errors import FileError, OptionError
from regtta.methods import SSA, NoAdaptation
from regtta_bench.demo import run_demo
from regtta_bench.demo.demo_figure import FLOOR, draw_demo_figure
from regtta_bench.demo.demo_recipe import DemoMethod, DemoRecipe
from regtta_bench.demo.demo_records import results_json
from regtta_bench.demo.demo_run import state_conclusions
from regtta_bench.demo.demo_table import markdown, terminal_table


def shown(study, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(terminal_table(study, width))
    return console.file.getvalue()


def tables_of(text: str) -> dict[str, dict[str, list[str]]]:
    """Return the Markdown tables as title → label → cells."""
    tables = {}
    for part in text.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
        tables[title] = {label: cells for label, *cells in rows}
    return tables


@pytest.fixture(scope="module", autouse=True)
def _without_page_figures():
    """Leave the figures of report.html, which take most of the demo's time, to tests/bench/test_real_pages.py."""
    pixel = io.BytesIO()
    Image.new("RGB", (1, 1)).save(pixel, "PNG")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regtta.report.rendering.encode_png", lambda _: pixel.getvalue())
        yield


@pytest.fixture(scope="module")
def done(toy, tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "made" / "here"
    console = Console(width=120, file=io.StringIO())
    return run_demo(out=out, console=console, seed=4, sources=2, recipe=toy), console.file.getvalue()


def test_demo_shows_and_writes_everything(done):
    result, text = done
    assert "Training 2 source models" in text
    assert "42/42" in text  # two source models, three streams, seven methods
    for path in (result.json_path, result.markdown_path, result.figure_path, result.report_path):
        assert path.is_file()
        assert str(path) in text
    assert {path.name for path in result.json_path.parent.iterdir()} == {
        "results.json", "results.md", "demo.png", "detail.json", "report.html",
    }  # fmt: skip
    assert json.loads(result.detail_path.read_text(encoding="utf-8"), parse_constant=pytest.fail)["source_seed"] == 4
    # The conclusions are also in the files.
    kept = json.loads(result.json_path.read_text(encoding="utf-8"))
    assert tuple(kept["closing"]) == result.conclusions
    assert all(sentence in result.markdown_path.read_text(encoding="utf-8") for sentence in result.conclusions)
    assert result.training_seconds > 0
    assert result.adapting_seconds > 0


def test_json_holds_every_run_with_all_its_options(done, toy):
    result, _ = done
    kept = json.loads(result.json_path.read_text(encoding="utf-8"))
    assert set(kept["versions"]) == {"regtta", "torch", "python"}
    assert kept["device"] == "cpu"
    assert kept["seeds"] == [4, 5]
    assert len(kept["runs"]) == 2 * 3 * 7 * 2
    ssa = next(r for r in kept["runs"] if r["arm"] == "ssa" and r["scene"] == "contrast")
    assert ssa["method"]["k"] == 100
    assert ssa["method"]["lr"] == 1e-3
    assert ssa["degradation"] == {"type": "Contrast", "factor": 0.15}
    assert ssa["batches"] == {"learned": 2, "refused": {"a batch of 1 has no variance": 1}}
    run = next(r for r in result.study.runs if r.method_name == "ssa" and r.scene == "contrast")
    assert ssa["scores"]["r2"] == run.outcome.scores["offline"]["r2"]


def test_json_and_markdown_agree(done):
    result, _ = done
    kept = json.loads(result.json_path.read_text(encoding="utf-8"))
    tables = tables_of(result.markdown_path.read_text(encoding="utf-8"))
    assert len(tables) == 2 * 3 * 3
    titles = {"r2": "R²", "rmse": "RMSE, digits", "mae": "MAE, digits"}
    labels = {entry.name: entry.label for entry in result.study.recipe.methods}
    for cell in kept["summary"]:
        column = result.study.recipe.scenes.index(cell["scene"])
        title, label = f"{titles[cell['score']]}, {cell['protocol']}", labels[cell["arm"]]
        written = [float(n.replace("−", "-")) for n in tables[title][label][column].split(" ±")]
        assert written == pytest.approx([cell["mean"], cell["sd"]], abs=5.1e-4)
        records = [
            record["scores"][cell["score"]]
            for record in kept["runs"]
            if all(record[key] == cell[key] for key in ("scene", "arm", "protocol"))
        ]
        assert cell["mean"] == pytest.approx(sum(records) / 2)
        for key, whose in (("less_source", "Source"), ("less_rival", "BN-adapt")):
            if key in cell and (whose == "Source" or cell[key]["against"] != "source"):
                gap = tables[f"{title}, less {whose}'s"][label][column].split(" ±")[0]
                assert float(gap.replace("−", "-")) == pytest.approx(cell[key]["mean"], abs=5.1e-4)


def test_markdown_subtracts_the_baseline_of_each_method(study_of):
    study = study_of(
        {
            ("noisy", "source"): (-1.0,) * 3,
            ("noisy", "bn_adapt_debiased"): (0.6,) * 3,
            ("noisy", "ssa"): (0.9,) * 3,
        }
    )
    tables = tables_of(markdown(study, ()))
    less_rival = {label: cells[1] for label, cells in tables["R², offline, less BN-adapt's"].items()}
    assert less_rival == {
        "Alignment": "0.000 ±0.000",
        "SSA, paper": "0.000 ±0.000",
        "BN-adapt debiased": "+0.100 ±0.000",
        "Alignment debiased": "−0.100 ±0.000",
        "SSA": "+0.300 ±0.000",
    }
    assert tables["R², offline, less Source's"]["SSA"][1] == "+1.900 ±0.000"


def test_terminal_table_agrees_with_the_study_at_any_width(done):
    study = done[0].study
    means = [study.spread(scene, "ssa").text() for scene in study.recipe.scenes]
    wide, narrow = shown(study, 120), shown(study, 60)
    row = next(line for line in wide.splitlines() if line.strip().startswith("SSA "))
    assert re.findall(r"−?\d\.\d+ ±\d\.\d+", row) == means
    for mean in means:
        assert all(part in narrow for part in mean.split(" "))
    assert "…" not in wide + narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_demo_twice_writes_the_same_results(done, toy, tmp_path):
    result, _ = done
    again = run_demo(out=tmp_path, console=Console(quiet=True), seed=4, sources=2, recipe=toy)
    assert again.json_path.read_bytes() == result.json_path.read_bytes()
    assert again.figure_path.read_bytes() == result.figure_path.read_bytes()


def test_diverged_runs_are_shown_as_diverged(toy, tmp_path):
    wild = DemoRecipe(
        source_digits=200,
        target_digits=65,
        training=toy.training,
        degradations=toy.degradations,
        methods=(DemoMethod("source", "Source", NoAdaptation()), DemoMethod("ssa", "SSA", SSA(lr=1e30), "source")),
    )
    console = Console(width=120, file=io.StringIO())
    result = run_demo(out=tmp_path, console=console, sources=1, recipe=wild)
    assert "diverged 1/1" in console.file.getvalue()
    kept = json.loads(result.json_path.read_text(encoding="utf-8"))
    assert {record["diverged"] is not None for record in kept["runs"] if record["arm"] == "ssa"} == {True}
    assert {record["diverged"] for record in kept["runs"] if record["arm"] == "source"} == {None}
    assert any("diverged" in sentence for sentence in result.conclusions)


def test_results_with_a_diverged_run_are_strict_json(study_of):
    study = study_of({("noisy", "ssa"): (0.6, None, 0.6)})
    kept = json.loads(results_json(study, state_conclusions(study)), parse_constant=pytest.fail)
    cell = next(c for c in kept["summary"] if (c["scene"], c["arm"]) == ("noisy", "ssa"))
    assert (cell["mean"], cell["sd"], cell["count"], cell["diverged"]) == (None, None, 3, 1)
    assert tables_of(markdown(study, ()))["R², offline"]["SSA"][1] == "diverged 1/3"


def test_figure_has_a_digit_for_each_stream_and_a_mark_for_each_method(done, toy, toy_source):
    figure = draw_demo_figure(done[0].study, toy_source)
    *digits, scores, gains = figure.axes
    assert len(digits) == len(toy.scenes)
    assert [axes.get_title() for axes in digits] == list(toy.scenes)
    marks = [line for line in scores.lines if line.get_marker() in ("X", "s", "^", "o")]
    beyond = [1 for s in toy.scenes for a in toy.methods if (done[0].study.spread(s, a.name).mean or 0) < FLOOR]
    assert len(marks) + len(beyond) == len(toy.scenes) * len(toy.methods)
    assert len([line for line in gains.lines if line.get_marker() in ("^", "o")]) == len(toy.scenes) * 4
    assert len(figure.legends[0].get_texts()) == len(toy.methods)


def test_figure_marks_values_beyond_its_axis_and_diverged_runs(study_of, toy_source):
    study = study_of({("noisy", "source"): (-9.0, -8.0, -10.0), ("contrast", "ssa"): (0.5, None, 0.5)})
    scores, gains = draw_demo_figure(study, toy_source).axes[-2:]
    assert "−9.000" in [text.get_text() for text in scores.texts]
    assert "diverged 1/3" in [text.get_text() for text in scores.texts]
    assert "diverged 1/3" in [text.get_text() for text in gains.texts]
    assert scores.get_ylim()[0] == FLOOR


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2), tuple(range(1000, 1100))])
def test_nothing_in_the_figure_is_cut_off(study_of, toy_source, seeds):
    figure = draw_demo_figure(study_of({}, seeds=seeds), toy_source)
    figure.canvas.draw()
    texts = [*figure.texts, *figure.legends, *(text for axes in figure.axes for text in axes.texts)]
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1


def test_figure_is_written_at_twice_the_width_of_a_readme(done):
    assert imread(done[0].figure_path).shape[1] == 1800


def test_figure_leaves_matplotlib_as_it_was(study_of, toy_source):
    before = dict(matplotlib.rcParams)
    draw_demo_figure(study_of({}), toy_source)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("sources", [0, -1, 1.5])
def test_an_invalid_number_of_source_models_is_rejected(tmp_path, toy, sources):
    with pytest.raises(OptionError, match="sources"):
        run_demo(out=tmp_path / "new", console=Console(quiet=True), sources=sources, recipe=toy)
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_way_of_the_folder_is_an_error_that_helps(tmp_path, toy):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(FileError, match="Cannot create the folder"):
        run_demo(out=tmp_path / "taken", console=Console(quiet=True), recipe=toy)
    assert (tmp_path / "taken").read_text() == "mine"
