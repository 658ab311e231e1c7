"""Verdict, facts and warnings of an adaptation record, in sentences."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regtta.methods import METHODS
from regtta.persistence import to_dict
from regtta.report.content import Tone
from regtta.report.formatting import number
from regtta.statistics import LabelShiftEvidence

_MOVED_OUTPUT = 0.5  # source standard deviations; the label shift of the California data is about this large
_FEW_SAMPLES = 200
_FAR = 0.5  # weight displacement relative to the norm of the weights
_HARDLY = 1.05  # distance ratios below this count as no change
_TINY = 1e-12


@dataclass(frozen=True)
class Verdict:
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


def verdict_of(record: Mapping[str, Any]) -> Verdict:
    """Judge a record by its labelled scores or, without labels, by how far the features moved."""
    scores = record.get("scores")
    if not scores or scores["before"]["r2"] is None:
        return _without_labels(record)
    before, after = scores["before"]["r2"], scores["after"]["r2"]
    if after is None:
        text = f"{_method(record)} gave predictions that are not finite: do not use this model."
        return Verdict(text, "worse", (f"R² was {number(before)} as trained.",), None)
    gain = record.get("gain") or {}
    tone = _tone(gain.get("low"), gain.get("high"))
    if (after - before) * {"better": 1, "worse": -1}.get(tone, 1) < 0:
        tone = "undecided"  # all samples and the bootstrap sample disagree on the sign
    verbs: dict[str, str] = {"better": "raised", "worse": "lowered"}
    changed = f"{verbs.get(tone, 'took')} R² from {number(before)} to {number(after)}"
    doubt = "" if tone in verbs else ", which the samples at hand leave undecided"
    return Verdict(f"{_method(record)} {changed}{doubt}.", tone, _behind_scores(record), after - before)


def _tone(low: float | None, high: float | None) -> Tone:
    if low is None or high is None:
        return "undecided"
    if low > 0:
        return "better"
    return "worse" if high < 0 else "undecided"


def _behind_scores(record: Mapping[str, Any]) -> tuple[str, ...]:
    scores, gain = record["scores"], record.get("gain") or {}
    words = [f"Scored {record['protocol']} on {scores['after']['count']} samples with labels."]
    if gain.get("low") is not None:
        words.append(
            f"{gain['rows']} of them, drawn at random, give a difference of "
            f"{number(gain['mean'], signed=True)} in R², 95 % interval {number(gain['low'], signed=True)} to "
            f"{number(gain['high'], signed=True)}."
        )
    return (*words, *_alignment_words(record))


def _without_labels(record: Mapping[str, Any]) -> Verdict:
    shift = record.get("shift")
    if not shift and "unmeasured" in record:
        text = f"{_method(record)} left features or predictions that cannot be measured: do not rely on this model."
        return Verdict(text, "worse", _counts(record))
    if not shift:
        text = f"{_method(record)} adapted the model; without labels and statistics nothing can be said of its worth."
        return Verdict(text, "unknown", _counts(record))
    before, after = (distance(shift, key) for key in ("before", "after"))
    if after < before / _HARDLY:
        moved = f"brought the features {before / max(after, _TINY):.1f} times nearer to the source's"
    elif after > before * _HARDLY:
        moved = f"left the features {after / max(before, _TINY):.1f} times further from the source's"
    else:
        moved = "hardly moved the features"
    text = f"No labels, so no word on accuracy: {_method(record)} {moved}."
    return Verdict(text, "unknown", (*_counts(record), *_alignment_words(record)))


def _counts(record: Mapping[str, Any]) -> tuple[str, ...]:
    batches = record["learned"] + sum(record["refused"].values())
    return (f"{record['samples']} samples, {record['learned']} of {batches} batches learned from.",)


def _alignment_words(record: Mapping[str, Any]) -> tuple[str, ...]:
    words = []
    shift, outputs = record.get("shift"), record.get("outputs")
    if shift:
        before, after = (distance(shift, key) for key in ("before", "after"))
        words.append(
            f"The distance of the target's features to the source's, over {len(shift['means']['before'])} directions, "
            f"went from {before:.3g} to {after:.3g}."
        )
    if outputs:
        means = [outputs["means"][key][0] for key in ("before", "after")]
        words.append(
            f"Predictions average {number(means[0])} before and {number(means[1])} after; the source's average "
            f"{number(outputs['source_means'][0])}."
        )
    return tuple(words)


def distance(shift: Mapping[str, Any], key: str) -> float:
    """Return the divergence summed over all directions; infinite if one of them is (``null`` in JSON)."""
    values = shift["divergences"][key]
    return math.inf if any(value is None for value in values) else float(sum(values))


def facts_of(record: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
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
        ("method", method_words(environment["method"])),
        ("protocol", str(record["protocol"])),
        ("versions", versions),
        ("device", str(environment["device"])),
    )


def method_words(method: Mapping[str, Any]) -> str:
    """Describe a method by its name and its non-default options.

    Example:
        >>> method_words({"name": "ssa", "type": "SSA", "k": 25})
        'ssa (k=25)'
    """
    usual = to_dict(METHODS[method["name"]]()) if method["name"] in METHODS else {}
    changed = {k: v for k, v in method.items() if k not in ("name", "type") and usual.get(k) != v}
    options = ", ".join(f"{key}={value}" for key, value in changed.items())
    return f"{method['name']} ({options})" if options else f"{method['name']}, all options at their defaults"


def warnings_of(record: Mapping[str, Any]) -> tuple[str, ...]:
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
    if record["samples"] < _FEW_SAMPLES:
        found.append(f"Only {record['samples']} samples: every number here is uncertain.")
    return (*found, *_clipped(record), *_moved_labels(record), *_strayed(record))


def _clipped(record: Mapping[str, Any]) -> list[str]:
    method, subspace = record["environment"]["method"], record.get("subspace")
    k = method.get("k")
    if not subspace or not isinstance(k, int) or not method.get("clip") or k <= subspace["rank"]:
        return []
    return [f"k = {k} is beyond the rank {subspace['rank']} of the source's features: k was cut to it."]


def _moved_labels(record: Mapping[str, Any]) -> list[str]:
    """Warn of label shift by the evidence in the features; records without it are judged by their predictions."""
    if "label_shift" not in record:
        return _moved_outputs(record)
    evidence = LabelShiftEvidence(**record["label_shift"])
    certainty = {"labels": "suspected", "both or unclear": "possible"}.get(evidence.verdict)
    return [] if certainty is None else [f"Label shift {certainty}: {evidence.sentence()}"]


def _moved_outputs(record: Mapping[str, Any]) -> list[str]:
    """Warn of label shift if the mean prediction of the unadapted model is far from the source mean."""
    outputs = record.get("outputs")
    if not outputs:
        return []
    found = []
    for place, (mean, sd) in enumerate(zip(outputs["source_means"], outputs["source_sds"], strict=True)):
        gap = (outputs["means"]["before"][place] - mean) / sd if sd else 0.0
        if abs(gap) > _MOVED_OUTPUT:
            which = "" if len(outputs["source_means"]) == 1 else f" of output {place}"
            found.append(
                f"Label shift suspected: before adapting, predictions{which} lie {number(gap, signed=True)} source "
                "standard deviations from the source's on average. If the labels themselves have moved, alignment "
                "undoes what is real: check on a labelled sample."
            )
    return found


def _strayed(record: Mapping[str, Any]) -> list[str]:
    found = []
    displacement = record["stream"]["displacement"]
    last = math.inf if displacement and displacement[-1] is None else (displacement or [0.0])[-1]
    if last > _FAR:
        how_far = "out of all bounds" if math.isinf(last) else f"by {last:.0%} of their own length"
        found.append(f"The weights moved {how_far}: a long way for adaptation.")
    shift = record.get("shift")
    if shift and distance(shift, "after") > _HARDLY * distance(shift, "before"):
        found.append("The features are further from the source's after adapting than before.")
    if "unmeasured" in record:
        found.append(f"Parts of this report are missing: {record['unmeasured']}")
    return found


def _method(record: Mapping[str, Any]) -> str:
    return str(record["environment"]["method"]["name"])
