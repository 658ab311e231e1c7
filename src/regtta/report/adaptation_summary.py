"""Verdict, facts and warnings of an adaptation record, in sentences."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regtta.methods import METHODS
from regtta.persistence import to_dict
from regtta.report.content import Tone
from regtta.report.formatting import format_number
from regtta.statistics import LabelShiftEvidence

_MAX_OUTPUT_SHIFT = 0.5  # source standard deviations; the label shift of the California data is about this large
_MIN_SAMPLES = 200
_MAX_DISPLACEMENT = 0.5  # weight displacement relative to the norm of the weights
_NO_CHANGE_RATIO = 1.05  # distance ratios below this count as no change
_TINY = 1e-12


Record = Mapping[str, Any]  # of ``regtta adapt --record``, as parsed from JSON


@dataclass(frozen=True)
class RunVerdict:
    """Effect of an adaptation on accuracy.

    Attributes:
        headline: verdict in one sentence.
        tone: verdict in one word.
        summary: sentences with the numbers behind the verdict.
        gain: change in R²; None without labels or with non-finite predictions.
    """

    headline: str
    tone: Tone
    summary: tuple[str, ...]
    gain: float | None = None


def judge_record(record: Record) -> RunVerdict:
    """Judge a record by its labelled scores or, without labels, by how far the features moved."""
    scores = record.get("scores")
    if not scores or scores["before"]["r2"] is None:
        return _judge_without_labels(record)
    before, after = scores["before"]["r2"], scores["after"]["r2"]
    if after is None:
        text = f"{_method_name(record)} gave predictions that are not finite: do not use this model."
        return RunVerdict(text, "worse", (f"R² was {format_number(before)} as trained.",), None)
    gain = record.get("gain") or {}
    tone = _tone(gain.get("low"), gain.get("high"))
    if (after - before) * {"better": 1, "worse": -1}.get(tone, 1) < 0:
        tone = "undecided"  # all samples and the bootstrap sample disagree on the sign
    verbs: dict[str, str] = {"better": "raised", "worse": "lowered"}
    changed = f"{verbs.get(tone, 'took')} R² from {format_number(before)} to {format_number(after)}"
    doubt = "" if tone in verbs else ", which the samples at hand leave undecided"
    return RunVerdict(f"{_method_name(record)} {changed}{doubt}.", tone, _score_sentences(record), after - before)


def _tone(low: float | None, high: float | None) -> Tone:
    if low is None or high is None:
        return "undecided"
    if low > 0:
        return "better"
    return "worse" if high < 0 else "undecided"


def _score_sentences(record: Record) -> tuple[str, ...]:
    scores, gain = record["scores"], record.get("gain") or {}
    sentences = [f"Scored {record['protocol']} on {scores['after']['count']} samples with labels."]
    if gain.get("low") is not None:
        mean, low, high = (format_number(gain[key], signed=True) for key in ("mean", "low", "high"))
        sentences.append(
            f"{gain['rows']} of them, drawn at random, give a difference of {mean} in R², 95 % interval {low} to "
            f"{high}."
        )
    return (*sentences, *_alignment_sentences(record))


def _judge_without_labels(record: Record) -> RunVerdict:
    shift = record.get("shift")
    if not shift and "unmeasured" in record:
        text = (
            f"{_method_name(record)} left features or predictions that cannot be measured: do not rely on this model."
        )
        return RunVerdict(text, "worse", _count_sentences(record))
    if not shift:
        text = (
            f"{_method_name(record)} adapted the model; without labels and statistics nothing can be said of its worth."
        )
        return RunVerdict(text, "unknown", _count_sentences(record))
    before, after = (total_divergence(shift, key) for key in ("before", "after"))
    if after < before / _NO_CHANGE_RATIO:
        moved = f"brought the features {before / max(after, _TINY):.1f} times nearer to the source's"
    elif after > before * _NO_CHANGE_RATIO:
        moved = f"left the features {after / max(before, _TINY):.1f} times further from the source's"
    else:
        moved = "hardly moved the features"
    text = f"No labels, so no word on accuracy: {_method_name(record)} {moved}."
    return RunVerdict(text, "unknown", (*_count_sentences(record), *_alignment_sentences(record)))


def _count_sentences(record: Record) -> tuple[str, ...]:
    batches = record["learned"] + sum(record["refused"].values())
    return (f"{record['samples']} samples, {record['learned']} of {batches} batches learned from.",)


def _alignment_sentences(record: Record) -> tuple[str, ...]:
    sentences = []
    shift, outputs = record.get("shift"), record.get("outputs")
    if shift:
        before, after = (total_divergence(shift, key) for key in ("before", "after"))
        sentences.append(
            f"The distance of the target's features to the source's, over {len(shift['means']['before'])} directions, "
            f"went from {before:.3g} to {after:.3g}."
        )
    if outputs:
        mean_before, mean_after = (format_number(outputs["means"][key][0]) for key in ("before", "after"))
        source = format_number(outputs["source_means"][0])
        sentences.append(
            f"Predictions average {mean_before} before and {mean_after} after; the source's average {source}."
        )
    return tuple(sentences)


def total_divergence(shift: Mapping[str, Any], key: str) -> float:
    """Return the divergence summed over all directions; infinite if one of them is (``null`` in JSON)."""
    values = shift["divergences"][key]
    return math.inf if any(value is None for value in values) else float(sum(values))


def collect_facts(record: Record) -> tuple[tuple[str, str], ...]:
    """Return pairs of name and value for model, data, statistics, method, protocol, versions and device."""
    environment, statistics = record["environment"], record.get("statistics")
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    known = (
        f"{statistics['count']} samples at {statistics['head']!r}, model {statistics['fingerprint'][:12]}"
        if statistics
        else "none"
    )
    return (
        ("model", str(record["model"])),
        ("data", str(record["data"])),
        ("source statistics", known),
        ("method", format_method(environment["method"])),
        ("protocol", str(record["protocol"])),
        ("versions", versions),
        ("device", str(environment["device"])),
    )


def format_method(method: Mapping[str, Any]) -> str:
    """Describe a method by its name and its non-default options.

    Example:
        >>> format_method({"name": "ssa", "type": "SSA", "k": 25})
        'ssa (k=25)'
    """
    usual = to_dict(METHODS[method["name"]]()) if method["name"] in METHODS else {}
    changed = {k: v for k, v in method.items() if k not in ("name", "type") and usual.get(k) != v}
    options = ", ".join(f"{key}={value}" for key, value in changed.items())
    return f"{method['name']} ({options})" if options else f"{method['name']}, all options at their defaults"


def collect_warnings(record: Record) -> tuple[str, ...]:
    """Return the caveats of a record in plain words."""
    found = []
    if record["not_finite"]:
        found.append(f"{record['not_finite']} predictions are not finite.")
    if record.get("excluded"):  # absent from records of version 0.1.0
        found.append(f"{record['excluded']} samples were left out of learning: not finite, or far from all others.")
    refused = sum(record["refused"].values())
    if refused:
        reasons = "; ".join(record["refused"])
        found.append(f"{refused} batches were predicted but not learned from: {reasons}.")
    if record["samples"] < _MIN_SAMPLES:
        found.append(f"Only {record['samples']} samples: every number here is uncertain.")
    return (*found, *_warn_of_clipped_k(record), *_warn_of_label_shift(record), *_warn_of_displacement(record))


def _warn_of_clipped_k(record: Record) -> list[str]:
    method, subspace = record["environment"]["method"], record.get("subspace")
    k = method.get("k")
    if not subspace or not isinstance(k, int) or not method.get("clip") or k <= subspace["rank"]:
        return []
    return [f"k = {k} is beyond the rank {subspace['rank']} of the source's features: k was cut to it."]


def _warn_of_label_shift(record: Record) -> list[str]:
    """Warn of label shift by the evidence in the features; records without it are judged by their predictions."""
    if "label_shift" not in record:
        return _warn_of_output_shift(record)
    evidence = LabelShiftEvidence(**record["label_shift"])
    certainty = {"labels": "suspected", "both or unclear": "possible"}.get(evidence.verdict)
    return [] if certainty is None else [f"Label shift {certainty}: {evidence.sentence()}"]


def _warn_of_output_shift(record: Record) -> list[str]:
    """Warn of label shift if the mean prediction of the unadapted model is far from the source mean."""
    outputs = record.get("outputs")
    if not outputs:
        return []
    found = []
    for index, (mean, sd) in enumerate(zip(outputs["source_means"], outputs["source_sds"], strict=True)):
        gap = (outputs["means"]["before"][index] - mean) / sd if sd else 0.0
        if abs(gap) > _MAX_OUTPUT_SHIFT:
            which = "" if len(outputs["source_means"]) == 1 else f" of output {index}"
            found.append(
                f"Label shift suspected: before adapting, predictions{which} lie {format_number(gap, signed=True)} "
                "source standard deviations from the source's on average. If the labels themselves have moved, "
                "alignment undoes what is real: check on a labelled sample."
            )
    return found


def _warn_of_displacement(record: Record) -> list[str]:
    found = []
    displacement = record["stream"]["displacement"]
    last = math.inf if displacement and displacement[-1] is None else (displacement or [0.0])[-1]
    if last > _MAX_DISPLACEMENT:
        how_far = "out of all bounds" if math.isinf(last) else f"by {last:.0%} of their own length"
        found.append(f"The weights moved {how_far}: a long way for adaptation.")
    shift = record.get("shift")
    if shift and total_divergence(shift, "after") > _NO_CHANGE_RATIO * total_divergence(shift, "before"):
        found.append("The features are further from the source's after adapting than before.")
    if "unmeasured" in record:
        found.append(f"Parts of this report are missing: {record['unmeasured']}")
    return found


def _method_name(record: Record) -> str:
    return str(record["environment"]["method"]["name"])
