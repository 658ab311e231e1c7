"""Signals computed by hand, and findings from constructed records."""

import csv
import io
import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from regtta.errors import InvalidFileError
from regtta.methods import NoAdaptation
from regtta.models.features import FeatureModel
from regtta_bench.label_shift.label_shift_findings import (
    QUESTIONS,
    VERDICT_METHOD,
    VERDICTS,
    caution_rows,
    compute_roc_curves,
    oriented_signal,
    roc_rows,
    second_half_seeds,
    verdict_rows,
)
from regtta_bench.label_shift.label_shift_tables import make_study_tables
from regtta_bench.label_shift.measurements import (
    SIGNALS,
    SourceProfile,
    compute_features,
    round_significant,
    score_method,
)
from regtta_bench.label_shift.method_comparison import BY_VERDICT
from regtta_bench.label_shift.study import read_records


@pytest.fixture(scope="module")
def profile(testbed):
    forward = FeatureModel(testbed.model, testbed.statistics.head)
    features = compute_features(forward, testbed.train.inputs)
    return SourceProfile(testbed.statistics, forward.head, features), features, forward


def test_source_features_show_no_shift(profile):
    known, features, _ = profile
    found = known.signals(features)
    assert found.keys() == SIGNALS.keys()
    for name in ("output mean", "output variance", "reweighting needed", "rest", "conditional", "conditional support"):
        assert found[name] == pytest.approx(0, abs=0.02), name
    assert found["support"] == pytest.approx(0, abs=0.02)
    assert known.evidence(features).verdict == "none"


def test_signals_match_their_formulas(profile):
    known, features, forward = profile
    rows = features[:80] * 1.3 + 0.2
    found = known.signals(rows)
    z = features.double().numpy()
    weight = forward.head.weight.detach().double().numpy()[0]
    outputs = z @ weight
    shifted = rows.double().numpy() @ weight
    sd = outputs.std(ddof=1)
    assert found["output mean"] == pytest.approx(abs(shifted.mean() - outputs.mean()) / sd, rel=1e-4)
    assert found["output variance"] == pytest.approx(abs(np.log(shifted.var(ddof=1) / sd**2)), rel=1e-3)
    y = known.whitening(rows).double()
    total = float((y.mean(0) ** 2).sum() - y.var(0).sum() / 80)
    assert found["reweighting needed"] == pytest.approx(total, rel=1e-3)
    assert found["support"] == pytest.approx(float(((y**2).sum(1).mean() / y.shape[1]).log()), rel=1e-3)


def test_the_score_is_r2_but_for_the_sources_variance(testbed):
    inputs, targets = testbed.held_out.inputs[:64], testbed.held_out.targets[:64]
    with torch.no_grad():
        error = float(((testbed.model(inputs) - targets) ** 2).mean())
    expected = 1 - error / float(testbed.train.targets.var())
    assert score_method(testbed, NoAdaptation(), inputs, targets) == pytest.approx(expected, rel=1e-4)


def test_rounding_to_significant_digits():
    assert (round_significant(0.123456), round_significant(-123456.0), round_significant(0.0)) == (
        0.1235,
        -123500.0,
        0.0,
    )


# --- lines by hand ---------------------------------------------------------------------------------------------------


def case(kind, seed, value, *, moved=0.0, verdict="none", n=64, gain=None):
    line = {"record": "case", "data": "demo", "seed": seed, "kind": kind, "n": n, "moved": moved, "verdict": verdict}
    line |= {"inputs": "x" if kind in ("covariate", "mixed") else "", "level": 0 if kind == "covariate" else None}
    line |= {"mix": "m" if kind in ("label", "mixed") else ""}
    line["signals"] = {name: math.exp(value * sign) for name, sign in SIGNALS.items()}  # none below 0, as real ones
    return line if gain is None else line | {"gain": {"ssa": gain, "ssa, BN source": gain}}


@pytest.fixture
def lines():
    draw = np.random.default_rng(0)
    made = [{"record": "about", "data": "demo", "seeds": [0, 1, 2], "quick": False, "versions": {"regtta": "1"}}]
    for seed in range(3):
        for kind, size in (("none", 0.0), ("covariate", 0.5), ("label", 2.0), ("mixed", 1.0)):
            moved = 0.5 if kind in ("label", "mixed") else 0.0
            verdict = "labels" if kind == "label" else "none"
            for _ in range(10):
                gain = draw.normal() - size
                made.append(case(kind, seed, draw.normal() + size, moved=moved, verdict=verdict, gain=gain))
        for arm in dict.fromkeys(BY_VERDICT.values()):
            about = {"stream": "inputs", "verdict": ("labels", "inputs", "none")[seed], "n": 9}
            made.append({"record": "caution", "data": "demo", "seed": seed, "arm": arm, "r2": len(arm) + seed, **about})
    # Moves the labels by too little to count.
    return [*made, case("label", 0, 99.0, moved=0.1)]


def test_areas_are_those_of_the_cases_that_a_question_is_about(lines):
    rows = {(r.question, r.signal, r.models, r.n): r.roc for r in roc_rows(lines)}
    chosen = [x for x in lines if x["record"] == "case" and x["kind"] in ("label", "covariate") and x["moved"] != 0.1]
    values = [x["signals"]["prominence"] for x in chosen]
    found = rows["labels, not inputs", "prominence", "all", 0]
    assert found.auc == pytest.approx(roc_auc_score([x["kind"] == "label" for x in chosen], values))
    assert (found.positives, found.negatives) == (30, 30)
    # Every signal was made to point the same way.
    assert rows["labels, not inputs", "leak", "all", 0].auc == pytest.approx(found.auc)
    assert rows["labels, not inputs", "prominence", "all", 64] == found
    assert rows["labels, not inputs", "prominence", "second half", 0].positives == 10
    assert rows["labels, not inputs", "logistic regression", "second half", 0].positives == 10
    hurt = [x for x in lines if "gain" in x and x["gain"]["ssa"] < 0]
    assert rows["SSA hurts", "prominence", "all", 0].positives == len(hurt)
    assert {key[0] for key in rows} == set(QUESTIONS)


def test_a_question_without_cases_has_no_row(lines):
    kept = [line for line in lines if line.get("kind") != "mixed"]
    assert "mixed against covariate" not in {row.question for row in roc_rows(kept)}


def test_the_second_half_is_the_smaller(lines):
    cases = [line for line in lines if line["record"] == "case"]
    assert second_half_seeds(cases) == {2}
    assert oriented_signal(cases[:1], "leak")[0] == -cases[0]["signals"]["leak"]


def test_verdicts_are_counted(lines):
    rows = {(row.kind, row.models): row for row in verdict_rows(lines)}
    assert rows["label", "all"].cases == 30
    assert rows["label", "all"].shares == tuple(float(v == "labels") for v in VERDICTS)
    assert rows["covariate", "second half"].shares == (1, 0, 0, 0)


def test_the_row_by_the_verdict_holds_the_scores_of_the_recommended_methods(lines):
    rows = {row.method_name: row for row in caution_rows(lines)}
    arms = ("Source", "SSA, BN batch", "Source")
    assert rows[VERDICT_METHOD].r2 == tuple(len(arm) + seed for seed, arm in enumerate(arms))
    assert rows["Source"].mean == pytest.approx(np.mean(rows["Source"].r2))


def test_curves_end_in_both_corners(lines):
    ((false, true, area),) = compute_roc_curves(lines, "labels, not inputs", ["prominence"]).values()
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert area == pytest.approx(np.trapezoid(true, false))


def test_tables_agree_with_the_rows(lines):
    texts = make_study_tables(lines)
    assert set(texts) == {"demo.md", "demo-roc.csv", "demo-verdicts.csv", "demo-caution.csv"}
    (row,) = [
        line
        for line in csv.DictReader(io.StringIO(texts["demo-roc.csv"]))
        if (line["question"], line["signal"], line["models"]) == ("labels moved at all", "leak", "all")
    ]
    expected = next(
        r.roc for r in roc_rows(lines) if (r.question, r.signal, r.models) == ("labels moved at all", "leak", "all")
    )
    assert float(row["auc"]) == pytest.approx(expected.auc, abs=1e-4)
    assert f"| leak | {expected.auc:.3f} [" in texts["demo.md"]
    assert "smoke" not in texts["demo.md"]
    assert "121 shifts" in texts["demo.md"]


@pytest.mark.parametrize("content", ["", "{", '{"record": "case"}\n', "[]\n"])
def test_another_file_is_not_read(tmp_path, content):
    path = tmp_path / "demo.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidFileError, match="is not a file of regtta label-shift"):
        read_records(path)
    path.write_text(json.dumps({"record": "about"}) + "\n")
    assert read_records(path) == [{"record": "about"}]
