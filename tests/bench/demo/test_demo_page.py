"""The page of a demo: its verdict against the runs in ``results.json``, counted by hand."""

import copy
import json
import statistics
from pathlib import Path

import pytest

from regtta.errors import InvalidFileError
from regtta_bench.demo.demo_data import Contrast, Noise
from regtta_bench.demo.demo_model import DigitTraining
from regtta_bench.demo.demo_page import make_demo_page
from regtta_bench.demo.demo_recipe import DEMO_METHODS, DemoRecipe
from regtta_bench.demo.demo_records import analyse_example, results_json
from regtta_bench.demo.demo_run import state_conclusions
from regtta_bench.demo.demo_study import DemoRun, make_source, one_thread
from regtta_bench.demo.demo_table import DemoStudy
from regtta_bench.paper.protocol import PROTOCOLS, EvaluationResult

SCENES = ("clean", "noisy", "contrast")
LABELS = {entry.name: entry.label for entry in DEMO_METHODS}
RECIPE = DemoRecipe(
    source_digits=200,
    target_digits=65,
    training=DigitTraining(epochs=1),
    degradations={"noisy": Noise(0.3), "contrast": Contrast(0.15)},
)


@pytest.fixture(scope="module")
def analyses():
    with one_thread():
        return json.loads(json.dumps(analyse_example(RECIPE, make_source(RECIPE, seed=3)), allow_nan=False))


def r2_of(scene, name, seed):
    """Return distinct scores, with a larger gain of SSA over the source model on one degradation than on the other."""
    base = 0.3 + 0.05 * SCENES.index(scene) + 0.02 * seed + 0.01 * list(LABELS).index(name)
    return base + {"source": -0.4 * (scene == "noisy"), "bn_adapt": -0.05 * (scene == "noisy") * seed}.get(name, 0.0)


def results(numbers=None, seeds=(3, 4, 5)):
    """Return results as the demo writes them; ``numbers`` by (scene, method name, seed), None for a diverged run."""
    runs = []
    for seed in seeds:
        for scene in SCENES:
            for name in LABELS:
                value = (numbers or {}).get((scene, name, seed), r2_of(scene, name, seed))
                score = {"r2": value, "rmse": 2.0, "mae": 1.0, "pearson": 0.9, "count": 65}
                other = score | {"r2": -9.0}  # online: nothing of it belongs on the page
                by_protocol = {protocol: score if protocol == "offline" else other for protocol in PROTOCOLS}
                outcome = EvaluationResult(by_protocol, {}, 2, {}, "loss" if value is None else "")
                runs.append(DemoRun(seed, scene, name, outcome))
    study = DemoStudy(RECIPE, seeds, tuple(runs))
    return json.loads(results_json(study, state_conclusions(study)))


@pytest.fixture(scope="module")
def light(analyses):
    """Minimal analyses for a page, quick to draw."""
    return {name: analyses[name] for name in ("scene", "source_seed", "method", "stream")}


@pytest.fixture
def folder(tmp_path, light):
    def write(content=None, look=light):
        (tmp_path / "results.json").write_text(json.dumps(content or results()), encoding="utf-8")
        (tmp_path / "detail.json").write_text(json.dumps(look), encoding="utf-8")
        return tmp_path

    return write


def page_of(path: Path):
    return make_demo_page(path, f"regtta report {path}")


def written(value, *, plus=False):
    return f"{value:{'+' if plus else ''}.3f}".replace("-", "−")


def offline(content, name, scenes, seed=None):
    return statistics.fmean(
        run["scores"]["r2"]
        for run in content["runs"]
        if run["arm"] == name and run["scene"] in scenes and run["protocol"] == "offline"
        and seed in (None, run["source_seed"])
    )  # fmt: skip


def test_the_verdict_is_that_of_the_runs(folder):
    content = results()
    page = page_of(folder(content))
    scenes = SCENES[1:]
    source, baseline, ssa = (offline(content, name, scenes) for name in ("source", "bn_adapt_debiased", "ssa"))
    assert page.headline == (f"SSA takes the mean R² over 2 degradations from {written(source)} to {written(ssa)}.")
    assert page.tone == "better"
    for sentence, other, mean in zip(
        page.summary, ("the model as trained", "BN-adapt debiased"), (source, baseline), strict=True
    ):
        assert sentence.startswith(f"Over {other} that is {written(ssa - mean, plus=True)}, 95 % interval ")
        assert sentence.endswith(", over 3 source models.")
    gaps = [
        offline(content, "ssa", scenes, seed) - offline(content, "bn_adapt_debiased", scenes, seed)
        for seed in content["seeds"]
    ]
    # Of three source models the bootstrap draws each extreme thrice once in 27 times, more often than 2.5 %.
    assert f"{written(min(gaps), plus=True)} to {written(max(gaps), plus=True)}" in page.summary[1]


def test_worse_and_undecided_results_set_the_tone(folder):
    seeds = (3, 4, 5)
    lost = {(scene, "ssa", seed): -1.0 - 0.1 * seed for scene in SCENES for seed in seeds}
    assert page_of(folder(results(lost))).tone == "worse"
    mixed = {(scene, "ssa", seed): r2_of(scene, "source", seed) + (seed - 4) for scene in SCENES for seed in seeds}
    assert page_of(folder(results(mixed))).tone == "undecided"


def test_one_source_model_decides_nothing(folder):
    page = page_of(folder(results(seeds=(3,))))
    assert page.tone == "undecided"
    assert page.summary[0].endswith(", over one source model.")
    assert "interval" not in page.summary[0]


def test_the_grid_holds_every_mean_and_deviation(folder):
    content = results()
    (grid,) = page_of(folder(content)).sections[0].tables
    assert grid.columns == ("method", *SCENES)
    assert [row[0].text for row in grid.rows] == list(LABELS.values())
    for name, row in zip(LABELS, grid.rows, strict=True):
        for scene, entry in zip(SCENES, row[1:], strict=True):
            values = [r2_of(scene, name, seed) for seed in content["seeds"]]
            assert entry.text == f"{written(statistics.fmean(values))} ± {statistics.stdev(values):.3f}"
            assert entry.value == pytest.approx(statistics.fmean(values))


def test_the_overview_shows_the_grids_numbers(folder):
    page = page_of(folder())
    (grid,), (picture,) = page.sections[0].tables, page.sections[0].figures
    for row, container in zip(grid.rows, picture.figure.axes[0].containers, strict=True):
        assert container.get_label() == row[0].text
        assert container.lines[0].get_ydata().tolist() == [entry.value for entry in row[1:]]


def test_sections_facts_and_commands(folder, analyses):
    content = results()
    path = folder(content, analyses)
    page = page_of(path)
    assert [section.title for section in page.sections] == [
        "All methods on all streams",
        "Before and after",
        "Predictions",
        "The stream",
        "Features of every method",
        "The source's subspace",
        "Assumptions of alignment",
    ]
    assert [len(section.figures) for section in page.sections] == [1, 3, 3, 1, 1, 3, 2]
    assert page.sections[0].paragraphs == tuple(content["closing"])
    assert page.sections[1].paragraphs == ("SSA. Source model 3 on the noisy digits.",)
    assert dict(page.facts)["source models"] == "seed 3, seed 4, seed 5"
    assert "200 to train on" in dict(page.facts)["data"]
    assert page.command.splitlines() == [
        f"regtta demo --out {path} --seed 3 --sources 3",
        f"regtta report {path}",
    ]


def test_analyses_are_drawn_from_detail(folder, analyses, light):
    given = light | {"shift": analyses["shift"]}
    changed = copy.deepcopy(given)
    changed["shift"]["means"]["after"][0] += 1
    before, after = (page_of(folder(look=look)).sections[1].figures[0].figure for look in (given, changed))
    moved = after.axes[0].lines[2].get_ydata() - before.axes[0].lines[2].get_ydata()
    assert moved[0] == pytest.approx(1)
    assert moved[1:].tolist() == [0.0] * (len(moved) - 1)


def test_few_source_models_raise_a_warning(folder):
    assert page_of(folder()).warnings == ("3 source models show a direction, not significance.",)
    assert page_of(folder(results(seeds=tuple(range(6))))).warnings == ()


def test_a_missing_package_is_reported(folder, light):
    page = page_of(folder(look=light | {"missing": "Install POT."}))
    assert "A figure is missing. Install POT." in page.warnings
    assert next(s for s in page.sections if s.title == "Features of every method").figures == ()


def test_a_diverged_method_without_figures_is_reported(folder, analyses, light):
    rebuilt = {"reconstruction": analyses["reconstruction"]}
    page = page_of(folder(look=light | rebuilt | {"unmeasured": "All NaN."}))
    assert "Figures of SSA are missing: All NaN." in page.warnings
    assert [picture.title for picture in page.sections[1].figures] == ["Reconstruction from source directions"]


def test_the_command_includes_umap_if_the_report_does(folder, analyses, light):
    clouds = analyses["clouds"]
    page = page_of(folder(look=light | {"clouds": clouds, "umap": clouds | {"transport": None}}))
    section = next(s for s in page.sections if s.title == "Features of every method")
    assert [picture.title for picture in section.figures] == [
        "Principal components of the features",
        "UMAP of the features",
    ]
    assert "--umap" in page.command.splitlines()[0]


def test_a_diverged_run_is_counted_once_and_never_averaged_away(folder):
    page = page_of(folder(results({("noisy", "ssa", 4): None})))
    (grid,) = page.sections[0].tables
    texts = {row[0].text: [entry.text for entry in row] for row in grid.rows}
    assert texts["SSA"][2] == "diverged"
    assert sum(entry == "diverged" for row in texts.values() for entry in row) == 1
    (counted,) = [warning for warning in page.warnings if "diverged" in warning]
    assert counted.startswith("1 run")


def test_the_headline_of_a_diverged_method_has_no_nan(folder):
    page = page_of(folder(results({("noisy", "ssa", 4): None})))
    assert "nan" not in page.headline


def test_nothing_is_claimed_where_every_run_diverged(folder):
    page = page_of(folder(results({("noisy", "ssa", seed): None for seed in (3, 4, 5)})))
    assert page.tone == "worse"
    assert page.headline.startswith("SSA diverged on one of the ")
    assert page.summary[0] == "Against the model as trained it cannot be compared: a run diverged."
    assert not any("nan" in sentence for sentence in page.summary)


@pytest.mark.parametrize("name", ["results.json", "detail.json"])
@pytest.mark.parametrize("text", [None, "no json", "[1, 2]", '{"seeds": [1]}', "[" * 100_000])
def test_foreign_files_are_rejected_by_name(folder, name, text):
    path = folder()
    (path / name).unlink() if text is None else (path / name).write_text(text)
    with pytest.raises(InvalidFileError, match=f"{name} is not a valid file of regtta demo"):
        page_of(path)
