"""Study of choices by a few labels: scores on the samples that were not drawn, resuming, and the page."""

import json
from pathlib import Path

import pytest
import torch
from sklearn.metrics import r2_score

from benchmarks.select_study import __main__ as study
from benchmarks.select_study.choices import (
    RULES,
    Choice,
    choose_smallest_error,
    clipped_r2,
    draw_choices,
    score_rules,
    summarise_choices,
)
from benchmarks.select_study.page import make_page
from regtta.selection import CandidateScore


def make_predictions(count: int = 700) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return candidates of which ``good`` is better than the unadapted model, and ``bad`` far worse."""
    generator = torch.Generator().manual_seed(0)
    targets, noise = (torch.randn(count, 1, generator=generator, dtype=torch.float64) for _ in range(2))
    return {"source": targets + noise, "good": targets + 0.3 * noise, "bad": targets + 3 * noise}, targets


def test_r2_is_that_of_scikit_learn_clipped_at_minus_one():
    predictions, targets = make_predictions()
    assert clipped_r2(predictions["good"], targets) == pytest.approx(r2_score(targets, predictions["good"]))
    assert clipped_r2(predictions["bad"], targets) == -1.0
    assert clipped_r2(predictions["bad"] * float("nan"), targets) == -1.0


def test_choices_are_scored_on_the_samples_that_were_not_drawn():
    predictions, targets = make_predictions(100)
    seen = []

    def rule(given: dict[str, torch.Tensor], labels: torch.Tensor, seed: int) -> CandidateScore:
        seen.append(labels)
        return choose_smallest_error(given, labels, seed)

    (choice,) = draw_choices(predictions, targets, 16, 1, {"rule": rule})["rule"]
    others = torch.tensor([value not in seen[0] for value in targets])
    assert (len(seen[0]), int(others.sum())) == (16, 84)
    expected = r2_score(targets[others], predictions["good"][others]) - r2_score(
        targets[others], predictions["source"][others]
    )
    assert choice == Choice(pytest.approx(expected), 0.0, True)


def test_a_corrected_choice_is_scored_with_its_correction():
    _, targets = make_predictions(300)
    noise = torch.randn(300, 1, generator=torch.Generator().manual_seed(1))
    predictions = {"source": targets + 5 + 0.1 * noise, "same": targets + 5 + 0.1 * noise.flip(0)}
    found = draw_choices(predictions, targets, 64, 3)
    assert all(choice.gain == 0 and not choice.adapts for choice in found["select"])
    assert all(choice.gain > 1.8 and choice.loss < -1.8 for choice in found["select, affine"])


def test_summaries():
    found = summarise_choices([Choice(0.2, 0.0, True), Choice(-0.3, 0.5, True), Choice(0.0, 0.2, False)])
    assert found["right"] == found["harmful"] == pytest.approx(1 / 3)
    assert found["adapts"] == pytest.approx(2 / 3)
    assert (found["gain"], found["worst_gain"]) == (pytest.approx(-0.1 / 3), -0.3)
    assert (found["loss"], found["worst_loss"]) == (pytest.approx(0.7 / 3), 0.5)


def test_more_labels_than_half_of_the_target_are_left_out():
    found = score_rules(*make_predictions(100), draws=2)
    assert set(found["rules"]) == set(RULES)
    assert all(set(by_labels) == {"16", "32"} for by_labels in found["rules"].values())
    assert found["samples"] == 100


@pytest.fixture
def calls(monkeypatch) -> list[tuple[str, int]]:
    """Replace training and adaptation by fixed predictions, and return the list of calls."""
    made: list[tuple[str, int]] = []

    def predict(runner, spec, target, methods):
        made.append((target, spec.seed))
        return make_predictions(100)

    monkeypatch.setattr(study, "predict_target", predict)
    return made


def test_the_study_resumes_and_writes_its_page(tmp_path: Path, calls, capsys):
    line = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--draws", "2"]
    line += ["--only", "wine-white-to-red", "--only", "wine-red-to-white"]
    assert study.main([*line, "--sources", "1"]) == 0
    assert calls == [("red", 0), ("white", 0)]
    assert study.main([*line, "--sources", "2"]) == 0
    assert calls[2:] == [("red", 1), ("white", 1)]
    assert "finished before" in capsys.readouterr().out
    page = (tmp_path / "out" / study.PAGE).read_text()
    assert [line for line in page.splitlines() if line.startswith("### ")] == [
        "### Development half: rules",
        "### Development half: shifts",
        "### Held-out half: rules",
        "### Held-out half: shifts",
    ]
    lines = (tmp_path / "out" / study.RUNS).read_text().splitlines()
    assert [json.loads(line)["specification"]["shift"] for line in lines][:2] == [
        "wine-white-to-red",
        "wine-red-to-white",
    ]
    (tmp_path / "out" / study.PAGE).unlink()
    assert study.main(["--out", str(tmp_path / "out"), "--tables-only"]) == 0
    assert (tmp_path / "out" / study.PAGE).read_text() == page
    assert len(calls) == 4


def test_the_page_gives_means_over_source_models_and_shifts():
    def record(shift: str, seed: int, loss: float) -> dict:
        summary = summarise_choices([Choice(0.5 - loss, loss, True)])
        return {
            "specification": {"shift": shift, "half": "development", "seed": seed, "draws": 1},
            "result": {"r2": {"source": 0.25}, "rules": {rule: {"16": summary} for rule in RULES}},
        }

    page = make_page([record("a", 0, 0.0), record("a", 1, 0.2), record("b", 0, 0.3)])
    (line,) = [line for line in page.splitlines() if line.startswith("| select |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["select", "16", "25%", "0%", "100%", "+0.300", "+0.200", "0.200", "0.300", "b (0.300)"]


def test_missing_data_is_an_error(tmp_path: Path, capsys):
    assert study.main(["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--only", "wine-white-to-red"]) == 1
    assert "error: " in capsys.readouterr().err


RESULTS = Path(__file__).parents[2] / "results" / "select"


def test_the_committed_page_is_made_of_the_committed_runs(tmp_path: Path):
    lines = (RESULTS / "runs.jsonl").read_text(encoding="utf-8")
    (tmp_path / "runs.jsonl").write_text(lines, encoding="utf-8")
    study.main(["--out", str(tmp_path), "--tables-only"])
    assert (tmp_path / "select.md").read_text(encoding="utf-8") == (RESULTS / "select.md").read_text(encoding="utf-8")
