"""Verdicts, warnings and facts of records made by hand."""

import copy
import re

import pytest

from regtta.methods import METHODS
from regtta.persistence.identity import to_dict
from regtta.report.adaptation_summary import collect_facts, collect_warnings, format_method, judge_record


def scores(r2, count=500):
    return {"r2": r2, "rmse": 1.0, "mae": 0.8, "pearson": 0.7, "count": count}


def record_of(**changes):
    """Return a record without warnings: R² from 0.5 to 0.625, features twice as near."""
    record = {
        "command": "regtta adapt",
        "model": "mymodel:make",
        "data": "target.csv",
        "protocol": "offline",
        "samples": 500,
        "not_finite": 0,
        "learned": 8,
        "refused": {},
        "unscored": 0,
        "scores": {"before": scores(0.5), "after": scores(0.625)},
        "gain": {"rows": 500, "mean": 0.125, "low": 0.05, "high": 0.2},
        "sample": {"rows": 500, "seen": 500},
        "environment": {
            "versions": {"regtta": "0.1.0", "torch": "2.6"},
            "device": "cpu",
            "method": {"name": "ssa", **to_dict(METHODS["ssa"](k=3))},
        },
        "statistics": {"count": 1200, "head": "fc", "fingerprint": "0123456789abcdef" * 4},
        "subspace": {"rank": 12},
        "shift": {
            "means": {"before": [1.0, 0.5], "after": [0.1, 0.2]},
            "divergences": {"before": [3.0, 1.0], "after": [1.5, 0.5]},
        },
        "outputs": {
            "means": {"before": [2.0], "after": [2.1]},
            "source_means": [2.2],
            "source_sds": [1.0],
        },
        "stream": {"displacement": [0.01, 0.02]},
    }
    record |= changes
    return {name: copy.deepcopy(value) for name, value in record.items() if value is not ...}


UNLABELLED = {"scores": None, "gain": ...}
UNMEASURED = {"statistics": ..., "subspace": ..., "shift": ..., "outputs": ...}


# --- verdicts ------------------------------------------------------------------------------------


UNDECIDED = ", which the samples at hand leave undecided"


@pytest.mark.parametrize(
    ("after", "low", "high", "tone", "said"),
    [
        (0.625, 0.05, 0.2, "better", "ssa raised R² from 0.500 to 0.625."),
        (0.375, -0.2, -0.05, "worse", "ssa lowered R² from 0.500 to 0.375."),
        (-0.25, -2.0, -0.05, "worse", "ssa lowered R² from 0.500 to −0.250."),
        (0.625, -0.05, 0.2, "undecided", f"ssa took R² from 0.500 to 0.625{UNDECIDED}."),
        (0.625, 0.0, 0.2, "undecided", f"ssa took R² from 0.500 to 0.625{UNDECIDED}."),
        (0.375, -0.2, 0.0, "undecided", f"ssa took R² from 0.500 to 0.375{UNDECIDED}."),
        (0.375, None, None, "undecided", f"ssa took R² from 0.500 to 0.375{UNDECIDED}."),
    ],
)
def test_the_interval_determines_the_tone(after, low, high, tone, said):
    record = record_of(scores={"before": scores(0.5), "after": scores(after)})
    verdict = judge_record(record | {"gain": {"rows": 500, "mean": 0.1, "low": low, "high": high}})
    assert (verdict.tone, verdict.headline) == (tone, said)
    assert verdict.gain == pytest.approx(after - 0.5)


@pytest.mark.parametrize(
    ("after", "low", "high", "verb"), [(0.375, 0.1, 0.2, "raised"), (0.625, -0.2, -0.1, "lowered")]
)
def test_the_verb_never_contradicts_the_numbers_beside_it(after, low, high, verb):
    """The interval is computed from predictions after the stream; the scores may be of online predictions."""
    record = record_of(protocol="online", scores={"before": scores(0.5), "after": scores(after)})
    verdict = judge_record(record | {"gain": {"rows": 500, "mean": (low + high) / 2, "low": low, "high": high}})
    assert f"{verb} R² from 0.500 to {after:.3f}" not in verdict.headline


def test_without_an_interval_the_tone_is_undecided():
    assert judge_record(record_of(gain=...)).tone == "undecided"


def test_sentences_behind_a_score():
    summary = judge_record(record_of(gain={"rows": 500, "mean": -0.125, "low": -0.2, "high": -0.0625})).summary
    assert summary == (
        "Scored offline on 500 samples with labels.",
        "500 of them, drawn at random, give a difference of −0.125 in R², 95 % interval −0.200 to −0.062.",
        "The distance of the target's features to the source's, over 2 directions, went from 4 to 2.",
        "Predictions average 2.000 before and 2.100 after; the source's average 2.200.",
    )


def test_non_finite_predictions_are_worse():
    verdict = judge_record(record_of(scores={"before": scores(-0.5), "after": scores(None)}, gain={"low": None}))
    assert (verdict.tone, verdict.gain) == ("worse", None)
    assert verdict.headline == "ssa gave predictions that are not finite: do not use this model."
    assert verdict.summary == ("R² was −0.500 as trained.",)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([6.0, 2.0], [1.5, 0.5], "brought the features 4.0 times nearer to the source's"),
        ([1.0, 0.0], [2.0, 0.5], "left the features 2.5 times further from the source's"),
        ([1.0, 1.0], [1.0, 0.95], "hardly moved the features"),
        ([1.0, 1.0], [1.0, 1.05], "hardly moved the features"),
        ([0.0, 0.0], [0.0, 0.0], "hardly moved the features"),
    ],
)
def test_without_labels_the_verdict_states_the_distance(before, after, said):
    record = record_of(**UNLABELLED)
    record["shift"]["divergences"] = {"before": before, "after": after}
    verdict = judge_record(record)
    assert (verdict.tone, verdict.gain) == ("unknown", None)
    assert verdict.headline == f"No labels, so no word on accuracy: ssa {said}."
    assert verdict.summary[0] == "500 samples, 8 of 8 batches learned from."
    assert any(sentence.startswith("Predictions average") for sentence in verdict.summary)


def test_without_labels_and_statistics_the_verdict_is_unknown():
    verdict = judge_record(record_of(**UNLABELLED, **UNMEASURED, refused={"constant": 2}))
    assert verdict.tone == "unknown"
    assert verdict.headline == (
        "ssa adapted the model; without labels and statistics nothing can be said of its worth."
    )
    assert verdict.summary == ("500 samples, 8 of 10 batches learned from.",)


def test_labels_without_statistics_are_enough_for_a_verdict():
    verdict = judge_record(record_of(**UNMEASURED))
    assert verdict.tone == "better"
    assert len(verdict.summary) == 2


def test_existing_statistics_are_not_called_missing():
    """The run diverged: its features could not be compared, although there are statistics."""
    record = record_of(**UNLABELLED, shift=..., outputs=..., unmeasured="60 rows, 60 of them not finite.")
    assert "without labels and statistics" not in judge_record(record).headline


def test_infinite_divergences_are_supported():
    """The target is constant along a direction: its divergence is infinite, which is null in JSON."""
    far = {"before": [None, 1.0], "after": [None, 0.5]}
    record = record_of()
    record["shift"]["divergences"] = far
    assert judge_record(record).tone == "better"
    unlabelled = record_of(**UNLABELLED)
    unlabelled["shift"]["divergences"] = far
    assert judge_record(unlabelled).tone == "unknown"
    assert collect_warnings(record) == ()


def test_rows_without_labels_are_not_counted_among_those_behind_the_interval():
    """70 rows were looked at, but only 60 have labels: the sentence speaks of samples with labels."""
    record = record_of(scores={"before": scores(0.5, 60), "after": scores(0.6, 60)}, sample={"rows": 70, "seen": 70})
    record["gain"]["rows"] = 60
    (sentence,) = [text for text in judge_record(record).summary if "drawn at random" in text]
    assert int(re.search(r"(\d+) of them", sentence)[1]) <= 60


# --- warnings ------------------------------------------------------------------------------------


def test_an_ordinary_run_has_no_warnings():
    assert collect_warnings(record_of()) == ()
    assert collect_warnings(record_of(**UNMEASURED)) == ()


@pytest.mark.parametrize(("samples", "warned"), [(199, True), (200, False)])
def test_few_samples(samples, warned):
    found = collect_warnings(record_of(samples=samples))
    assert found == (("Only 199 samples: every number here is uncertain.",) if warned else ())


def test_non_finite_predictions_are_warned_of():
    assert collect_warnings(record_of(not_finite=3)) == ("3 predictions are not finite.",)


def test_rejected_batches_are_warned_of_with_all_reasons():
    found = collect_warnings(record_of(refused={"a batch of 1 has no variance": 1, "2 of 64 are not finite": 2}))
    assert found == (
        "3 batches were predicted but not learned from: a batch of 1 has no variance; 2 of 64 are not finite.",
    )


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"k": 13}, True),
        ({"k": 12}, False),
        ({"k": 13, "clip": False}, False),
        ({"k": "auto"}, False),
    ],
)
def test_clipping_of_k_is_warned_of(options, warned):
    record = record_of()
    record["environment"]["method"] |= options
    said = ("k = 13 is beyond the rank 12 of the source's features: k was cut to it.",)
    assert collect_warnings(record) == (said if warned else ())


def test_no_clipping_without_k_or_statistics():
    record = record_of()
    record["environment"]["method"] = {"name": "bn_adapt", **to_dict(METHODS["bn_adapt"]())}
    assert collect_warnings(record) == ()
    bare = record_of(**UNMEASURED)
    bare["environment"]["method"]["k"] = 100
    assert collect_warnings(bare) == ()


@pytest.mark.parametrize(("mean", "said"), [(3.26, "+0.530"), (1.14, "−0.530"), (3.19, None), (1.21, None)])
def test_a_shifted_mean_prediction_is_warned_of(mean, said):
    record = record_of()
    record["outputs"] |= {"means": {"before": [mean], "after": [99.0]}, "source_sds": [2.0]}
    found = collect_warnings(record)
    assert [text.split(": ")[0] for text in found] == (["Label shift suspected"] if said else [])
    if said:
        assert f"predictions lie {said} source standard deviations" in found[0]


def evidence(verdict):
    sizes = {"count": 500, "dimensions": 12, "output_shift": 0.61, "other_shift": 0.05, "prominence": 12.2}
    return {**sizes, "outputs_moved": True, "others_moved": False, "verdict": verdict}


@pytest.mark.parametrize(
    ("verdict", "said"),
    [("none", None), ("inputs", None), ("labels", "suspected"), ("both or unclear", "possible")],
)
def test_evidence_in_the_features_takes_precedence_over_the_mean_prediction(verdict, said):
    record = record_of(label_shift=evidence(verdict))
    record["outputs"] |= {"means": {"before": [9.0], "after": [9.0]}}  # far away, but the features know better
    found = collect_warnings(record)
    assert [text.split(": ")[0] for text in found] == ([f"Label shift {said}"] if said else [])
    if said:
        assert "outputs by 0.61 source standard deviations, other directions by 0.05 each" in found[0]


def test_each_output_is_checked():
    record = record_of()
    record["outputs"] = {
        "means": {"before": [0.0, 5.0, 0.0], "after": [0.0, 0.0, 0.0]},
        "source_means": [0.0, 0.0, 4.0],
        "source_sds": [1.0, 1.0, 0.0],  # a source that never varies sets no scale
    }
    (found,) = collect_warnings(record)
    assert "predictions of output 1 lie +5.000 source standard deviations" in found


@pytest.mark.parametrize(
    ("displacement", "warned"), [([0.9, 0.51], True), ([0.9, 0.5], False), ([0.75, None], True), ([None], True)]
)
def test_large_displacements_are_warned_of(displacement, warned):
    found = collect_warnings(record_of(stream={"displacement": displacement}))
    assert [text.startswith("The weights moved ") for text in found] == [True] * warned


def test_the_displacement_is_stated():
    (found,) = collect_warnings(record_of(stream={"displacement": [0.1, 0.756]}))
    assert found == "The weights moved by 76% of their own length: a long way for adaptation."


@pytest.mark.parametrize(("after", "warned"), [([3.5, 1.0], True), ([3.1, 1.0], False), ([0.0, 0.0], False)])
def test_features_further_from_the_source_are_warned_of(after, warned):
    record = record_of()
    record["shift"]["divergences"]["after"] = after
    said = ("The features are further from the source's after adapting than before.",)
    assert collect_warnings(record) == (said if warned else ())


def test_unmeasured_parts_are_warned_of():
    found = collect_warnings(record_of(shift=..., outputs=..., unmeasured="All of it is not finite."))
    assert found == ("Parts of this report are missing: All of it is not finite.",)


def test_several_warnings_are_combined():
    record = record_of(not_finite=1, refused={"constant": 1}, samples=10, stream={"displacement": [1.0]})
    assert [text.split()[0] for text in collect_warnings(record)] == ["1", "1", "Only", "The"]


# --- facts ---------------------------------------------------------------------------------------


def test_facts_describe_the_run():
    assert collect_facts(record_of()) == (
        ("model", "mymodel:make"),
        ("data", "target.csv"),
        ("source statistics", "1200 samples at 'fc', model 0123456789ab"),
        ("method", "ssa (k=3)"),
        ("protocol", "offline"),
        ("versions", "regtta 0.1.0, torch 2.6"),
        ("device", "cpu"),
    )
    assert dict(collect_facts(record_of(statistics=...)))["source statistics"] == "none"


@pytest.mark.parametrize("name", METHODS)
def test_default_options_are_stated(name):
    method = {"name": name, **to_dict(METHODS[name]())}
    assert format_method(method) == f"{name}, all options at their defaults"


def test_a_sum_shows_its_options():
    import regtta

    chosen = regtta.create_method("tent+ssa")
    words = format_method({"name": chosen.name, **to_dict(chosen)})
    assert words.startswith("tent+ssa (")
