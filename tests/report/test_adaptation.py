"""Pages of real records: their sections, tables and figures, and the numbers that these show."""

import copy
import json
import re

import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from helpers.attaching import attach
from regtta.metrics import RegressionMetrics
from regtta.report import adaptation_figures, write_page
from regtta.report.adaptation import build_adaptation_page
from regtta.report.adaptation_summary import judge_record
from regtta.report.recorder import RunRecorder


def record_of(model, method, source, inputs, labels=None, *, name="run.json", size=40):
    """Return a record as ``regtta adapt --record`` writes it, parsed from JSON."""
    adapter = regtta.Adapter(model, method, source)
    recorder = attach(RunRecorder(model), adapter)
    before, after = RegressionMetrics(), RegressionMetrics()
    steps = []
    for place, x in enumerate(inputs.split(size)):
        y = None if labels is None else labels.split(size)[place]
        recorder.labels = y
        steps.append(adapter.adapt(x))
        if y is not None:
            before.update(model(x), y)
            after.update(steps[-1].predictions, y)
    refused = [step.diagnostics.verdict.reason for step in steps if not step.diagnostics.verdict.learned]
    about = {
        "command": f"regtta adapt --record {name}",
        "model": "helpers.small_models:mlp",
        "data": "target.csv",
        "protocol": "online",
        "samples": len(inputs),
        "not_finite": int(sum((~step.predictions.isfinite()).sum() for step in steps)),
        "learned": len(steps) - len(refused),
        "refused": {reason: refused.count(reason) for reason in refused},
        "unscored": 0,
        "scores": None
        if labels is None
        else {"before": before.compute().to_dict(), "after": after.compute().to_dict()},
    }
    return json.loads(json.dumps(recorder.record(about, online=about["protocol"] == "online"), allow_nan=False))


@pytest.fixture(scope="module")
def stage():
    model = small_models.mlp(outputs=2)
    inputs = small_models.table(230, shift=1.0, scale=1.5, seed=2)
    labels = small_models.table(230, inputs=2, seed=7) + model(inputs).detach()
    return model, regtta.collect(model, small_models.table(300).split(50)), inputs, labels


@pytest.fixture(scope="module")
def record(stage):
    model, source, inputs, labels = stage
    return record_of(model, regtta.SSA(k=6, lr=0.01), source, inputs, labels)


@pytest.fixture(scope="module")
def page(record):
    return build_adaptation_page([record], "regtta report run.json --out page.html")


def pictures(page):
    return {picture.title: picture for section in page.sections for picture in section.figures}


def seen(figure):
    """Return all numbers and texts in the artists of a figure."""
    found = []
    for axes in figure.axes:
        found += [np.asarray(line.get_xydata(), dtype=float).tolist() for line in axes.lines]
        found += [np.asarray(collection.get_offsets(), dtype=float).tolist() for collection in axes.collections]
        found += [path.vertices.tolist() for collection in axes.collections for path in collection.get_paths()]
        found += [patch.get_path().vertices.tolist() for patch in axes.patches]
        found += [patch.get_extents().bounds for patch in axes.patches]
        found += [text.get_text() for text in axes.texts] + [axes.get_title()]
        found += [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else []
    return repr(found) + repr([text.get_text() for text in figure.texts])


SECTIONS = [
    "Before and after",
    "Predictions",
    "The stream",
    "The source's subspace",
    "Assumptions of alignment",
]


def test_the_page_of_one_record(record, page):
    verdict = judge_record(record)
    assert (page.headline, page.tone, page.summary) == (verdict.headline, verdict.tone, verdict.summary)
    assert page.title == "Adaptation of helpers.small_models:mlp"
    assert [section.title for section in page.sections] == SECTIONS
    assert dict(page.facts)["method"] == "ssa (lr=0.01, k=6)"
    assert page.command == "regtta adapt --record run.json\nregtta report run.json --out page.html"
    assert len(pictures(page)) == 12


def test_the_tables_hold_the_numbers_of_the_record(record, page):
    scored, shift = page.sections[0].tables
    assert [row[0].text for row in scored.rows] == ["as trained", "adapted, online"]
    for row, key in zip(scored.rows, ("before", "after"), strict=True):
        values = [record["scores"][key][score] for score in ("r2", "rmse", "mae", "pearson")]
        assert [entry.value for entry in row[1:]] == values
        assert [float(entry.text.replace("−", "-")) for entry in row[1:]] == pytest.approx(values, rel=1e-3)
    assert scored.notes == ("230 samples with labels.",)
    moved = record["shift"]
    assert len(shift.rows) == len(moved["means"]["before"])
    for place, row in enumerate(shift.rows):
        assert [entry.value for entry in row] == [
            place,
            record["subspace"]["output_shares"][place],
            *(moved[moment][key][place] for moment in ("means", "spreads") for key in ("before", "after")),
        ]


CHANGES = {
    "Means along the source's directions": ("shift", "means", "after", 1),
    "Spreads along the source's directions": ("shift", "spreads", "before", 0),
    "Reconstruction from source directions": ("reconstruction", "errors", "after", 2),
    "Distribution of predictions": ("outputs", "densities", "after", 0, 3),
    "Predictions against labels, as trained": ("predictions", "before", "predictions", 5, 0),
    "Predictions against labels, adapted": ("predictions", "after", "labels", 5, 0),
    "Over the stream": ("stream", "displacement", 1),
    "Spectrum of the source's features": ("subspace", "cumulative", 1),
    "Variance and weight of each direction": ("subspace", "effects", 1),
    "How raw dimensions move the subspace": ("gradients", "counts", -1),
    "Distance to a Gaussian": ("normality", "raw", "distance", 0),
    "Some dimensions beside their Gaussian": ("histograms", "projected", 0, "density", 3),
}


MAKERS = [
    adaptation_figures.make_shift_figures,
    adaptation_figures.make_prediction_figures,
    adaptation_figures.make_stream_figures,
    adaptation_figures.make_subspace_figures,
    adaptation_figures.make_assumption_figures,
]


def test_every_figure_is_drawn_from_its_numbers_in_the_record(record, page):
    assert list(CHANGES) == list(pictures(page))
    for make in MAKERS:
        whole = {picture.title: seen(picture.figure) for picture in make(record)}
        for title in whole:
            changed = copy.deepcopy(record)
            *way, last = CHANGES[title]
            place = changed
            for step in way:
                place = place[step]
            place[last] += 1
            found = {picture.title: seen(picture.figure) for picture in make(changed)}
            assert [name for name in whole if whole[name] != found[name]] == [title]


@pytest.fixture(scope="module")
def several(stage, record):
    model, source, inputs, labels = stage
    spoilt = inputs.clone()
    spoilt[:40, 0] = torch.nan
    return [
        record_of(model, regtta.BNAdapt(), None, inputs, name="bn.json"),
        record,
        record_of(model, regtta.SSA(k=2), source, spoilt, labels, name="other.json"),
    ]


def test_several_records_are_compared_side_by_side(several):
    page = build_adaptation_page(several, "regtta report bn.json run.json other.json")
    first, *others = page.sections
    (grid,) = first.tables
    names = ["bn_adapt", "ssa (2)", "ssa (3)"]
    assert [row[0].text for row in grid.rows] == names
    assert page.facts == (("runs", ", ".join(names)),)
    assert [entry.text for entry in grid.rows[0][1:]] == ["–", "–", "–", "–", "6 of 6"]
    for row, record in zip(grid.rows[1:], several[1:], strict=True):
        r2 = [record["scores"][key]["r2"] for key in ("before", "after")]
        far = [sum(record["shift"]["divergences"][key]) for key in ("before", "after")]
        assert [entry.value for entry in row[1:5]] == [None if value is None else pytest.approx(value)
                                                       for value in (*r2, *far)]  # fmt: skip
    assert grid.rows[2][5].text == "5 of 6"
    assert {section.title.split(": ")[0] for section in others} == set(names)
    assert [section.title for section in others if section.title.startswith("ssa (2): ")] == [
        f"ssa (2): {title}" for title in SECTIONS
    ]
    assert all(re.match(r"bn_adapt: |ssa \([23]\): ", warning) for warning in page.warnings)
    assert any("not finite" in warning for warning in page.warnings if warning.startswith("ssa (3): "))
    assert page.command.splitlines() == [
        "regtta adapt --record bn.json",
        "regtta adapt --record run.json",
        "regtta adapt --record other.json",
        "regtta report bn.json run.json other.json",
    ]


def test_the_headline_of_several_is_that_of_the_largest_gain(several):
    unlabelled = several[0]

    def scored(after):
        return unlabelled | {"scores": {key: several[1]["scores"]["before"] | {"r2": r2}
                                        for key, r2 in (("before", 0.5), ("after", after))}}  # fmt: skip

    low, high = scored(0.25), scored(0.987654)
    for records in ([unlabelled, low, high], [high, low, unlabelled]):
        assert "from 0.500 to 0.988" in build_adaptation_page(records, "x").headline
    assert "from 0.500 to 0.250" in build_adaptation_page([unlabelled, low], "x").headline
    assert build_adaptation_page([unlabelled, unlabelled], "x").headline == judge_record(unlabelled).headline


def test_a_repeated_run_gives_its_command_once(several):
    assert build_adaptation_page([several[0]] * 2, "x").command == "regtta adapt --record bn.json\nx"


def test_without_labels_and_statistics_only_the_stream_is_shown(several):
    page = build_adaptation_page(several[:1], "x")
    assert [section.title for section in page.sections if section.figures or section.tables] == ["The stream"]
    assert page.tone == "unknown"


def test_rejected_batches_are_listed(several):
    section = next(s for s in build_adaptation_page(several[2:], "x").sections if s.title == "The stream")
    (grid,) = section.tables
    assert [[entry.text for entry in row] for row in grid.rows] == [["40 of 40 samples are not finite", "1"]]
    assert section.paragraphs == ("230 samples in 6 batches, 5 of them learned from.",)


def test_page_of_a_diverged_adaptation(stage):
    model, source, inputs, labels = stage
    record = record_of(model, regtta.SSA(k=3, lr=1e30), source, inputs, labels)
    page = build_adaptation_page([record], "x")
    assert page.tone == "worse"
    assert "do not use this model" in page.headline
    assert any("Parts of this report are missing" in warning for warning in page.warnings)
    assert "Spectrum of the source's features" in pictures(page)
    assert "Means along the source's directions" not in pictures(page)


def test_page_of_a_constant_target(stage):
    model, source, _, _ = stage
    record = record_of(model, regtta.NoAdaptation(), source, torch.zeros(80, 5))
    page = build_adaptation_page([record], "x")
    assert page.tone == "unknown"
    for picture in pictures(page).values():
        picture.figure.canvas.draw()


def test_page_of_a_model_of_one_output_on_images():
    model = small_models.cnn()
    source = regtta.collect(model, [small_models.images(60)])
    inputs = small_models.images(60, shift=0.2, seed=3)
    page = build_adaptation_page(
        [record_of(model, regtta.SSA(k=4), source, inputs, model(inputs).detach(), size=20)], "x"
    )
    assert "Only 60 samples" in page.warnings[0]
    assert len(pictures(page)) == 12


def test_the_page_opens_without_errors(browser, stage, tmp_path):
    model, _, inputs, labels = stage
    page = build_adaptation_page([record_of(model, regtta.BNAdapt(), None, inputs, labels)], "regtta report run.json")
    path = write_page(page, tmp_path / "page.html")
    view = browser.new_page()
    complaints = []
    view.on("console", lambda message: complaints.append(message.text))
    view.on("pageerror", lambda error: complaints.append(str(error)))
    view.goto(path.as_uri())
    assert view.locator("h1").inner_text() == page.headline
    assert view.locator("figure img").count() == len(pictures(page)) == 3
    assert complaints == []
    view.close()
