"""Findings of the label-shift study, including combined signals."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from regtta_bench.label_shift.cases import CASE_KINDS
from regtta_bench.label_shift.measurements import CASE, SIGNALS
from regtta_bench.label_shift.method_comparison import BY_VERDICT, CAUTION
from regtta_bench.label_shift.roc import Array, Roc, compute_roc, compute_roc_curve

_RIDGE = 1e-2  # on standardised weights, which are not finite for separable classes without it
_STEPS = 50


class RidgeLogisticRegression:
    """Ridge-regularised logistic regression, fitted by Newton's method to machine precision on every platform.

    Args:
        values: ``(N, F)`` features.
        positive: ``(N,)`` labels, 0 or 1.
    """

    def __init__(self, values: Array, positive: Array) -> None:
        self._mean, self._sd = values.mean(axis=0), values.std(axis=0) + 1e-12
        inputs = self._inputs(values)
        weights = np.zeros(inputs.shape[1])
        for _ in range(_STEPS):
            probability = _sigmoid(inputs @ weights)
            gradient = inputs.T @ (probability - positive) / len(inputs) + _RIDGE * weights
            hessian = (inputs * (probability * (1 - probability))[:, None]).T @ inputs / len(inputs)
            step = np.linalg.solve(hessian + _RIDGE * np.eye(len(weights)), gradient)
            weights = weights - step * min(1.0, 5.0 / (float(np.abs(step).max()) + 1e-300))
        self._weights = weights

    def __call__(self, values: Array) -> Array:
        """Return the log odds ``(N,)``."""
        odds: Array = self._inputs(values) @ self._weights
        return odds

    def _inputs(self, values: Array) -> Array:
        return np.column_stack([np.ones(len(values)), (values - self._mean) / self._sd])


def _sigmoid(values: Array) -> Array:
    probability: Array = 0.5 * (1 + np.tanh(values / 2))
    return probability


StudyRecord = Mapping[str, Any]
CasePredicate = Callable[[StudyRecord], bool]

MIN_LABEL_SHIFT = 0.25  # change of the mean label, in source standard deviations, that counts as a label shift
ALL, SECOND_HALF = "all", "second half"
COMBINED_SIGNAL = "logistic regression"
VERDICTS = ("none", "inputs", "labels", "both or unclear")
VERDICT_METHOD = "by the verdict"


@dataclass(frozen=True)
class Question:
    """Binary classification of cases that a signal has to solve.

    Attributes:
        positive: predicate of positive cases.
        negative: predicate of negative cases.
    """

    positive: CasePredicate
    negative: CasePredicate


def _is_kind(*kinds: str) -> CasePredicate:
    return lambda line: line["kind"] in kinds and (not line["mix"] or abs(line["moved"]) >= MIN_LABEL_SHIFT)


def _harm_question(method_name: str, by: float) -> Question:
    return Question(
        lambda line: "gain" in line and line["gain"][method_name] < -by,
        lambda line: "gain" in line and line["gain"][method_name] >= -by,
    )


def _is_mild(line: StudyRecord) -> bool:
    return bool(line["kind"] == "covariate" and line["level"] == 0)


QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {
        "labels moved at all": Question(_is_kind("label", "mixed"), _is_kind("none", "covariate")),
        "labels, not inputs": Question(_is_kind("label"), _is_kind("covariate")),
        "labels, not mild inputs": Question(_is_kind("label"), _is_mild),
        "label against none": Question(_is_kind("label"), _is_kind("none")),
        "mixed against covariate": Question(_is_kind("mixed"), _is_kind("covariate")),
        "label against mixed": Question(_is_kind("label"), _is_kind("mixed")),
        "SSA hurts": _harm_question("ssa", 0.0),
        "SSA hurts by 0.05": _harm_question("ssa", 0.05),
        "SSA with BN source hurts": _harm_question("ssa, BN source", 0.0),
    }
)


@dataclass(frozen=True)
class RocRow:
    """ROC of one signal on one question; ``n`` is the sample size, 0 for all sizes."""

    question: str
    signal: str
    models: str
    n: int
    roc: Roc


@dataclass(frozen=True)
class VerdictRow:
    """Frequencies of the library's verdicts for one kind of shift; ``shares`` in the order of ``VERDICTS``."""

    kind: str
    n: int
    models: str
    cases: int
    shares: tuple[float, ...]


@dataclass(frozen=True)
class CautionRow:
    """R² of one method on one stream, one value per source model."""

    stream: str
    method_name: str
    r2: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over source models."""
        return statistics.fmean(self.r2)


def select_cases(lines: Iterable[StudyRecord]) -> list[StudyRecord]:
    """Return the records of constructed cases."""
    return [line for line in lines if line["record"] == CASE]


def second_half_seeds(cases: Sequence[StudyRecord]) -> frozenset[int]:
    """Return the seeds of the source models on which no thresholds were chosen."""
    seeds = sorted({line["seed"] for line in cases})
    return frozenset(seeds[(len(seeds) + 1) // 2 :])


def roc_rows(lines: Iterable[StudyRecord]) -> list[RocRow]:
    """Compute the ROC of every signal on every question.

    One question is also split by sample size. The combination of all signals is evaluated on the second half.
    """
    cases = select_cases(lines)
    later = [line for line in cases if line["seed"] in second_half_seeds(cases)]
    rows = []
    for name, question in QUESTIONS.items():
        for n in (0, *(sorted({line["n"] for line in cases}) if name == "labels, not inputs" else ())):
            sized = [line for line in cases if n in (0, line["n"])]
            rows += _rows_of(name, question, sized, ALL, n)
        rows += _rows_of(name, question, later, SECOND_HALF, 0)
        combined = _combined_roc(question, cases)
        rows += [] if combined is None else [RocRow(name, COMBINED_SIGNAL, SECOND_HALF, 0, combined)]
    return rows


def _rows_of(name: str, question: Question, cases: Sequence[StudyRecord], models: str, n: int) -> list[RocRow]:
    positive, negative = ([line for line in cases if test(line)] for test in (question.positive, question.negative))
    if min(len(positive), len(negative)) < 2:
        return []
    return [
        RocRow(
            name, signal, models, n, compute_roc(oriented_signal(positive, signal), oriented_signal(negative, signal))
        )
        for signal in SIGNALS
    ]


def oriented_signal(cases: Sequence[StudyRecord], signal: str) -> Array:
    """Return a signal of every case ``(N,)``, with its sign such that larger values indicate label shift."""
    return SIGNALS[signal] * np.array([line["signals"][signal] for line in cases], dtype=np.float64)


def _combined_roc(question: Question, cases: Sequence[StudyRecord]) -> Roc | None:
    tables = []
    later = second_half_seeds(cases)
    for wanted in (False, True):
        mine = [line for line in cases if (line["seed"] in later) == wanted]
        positive, negative = ([line for line in mine if test(line)] for test in (question.positive, question.negative))
        if min(len(positive), len(negative)) < 2:
            return None
        tables += [_table(positive), _table(negative)]
    truth = np.concatenate([np.ones(len(tables[0])), np.zeros(len(tables[1]))])
    model = RidgeLogisticRegression(np.concatenate(tables[:2]), truth)
    return compute_roc(model(tables[2]), model(tables[3]))


def _table(cases: Sequence[StudyRecord]) -> Array:
    """Return all signals ``(N, F)``; unbounded ones as logarithms."""
    columns = [np.array([line["signals"][name] for line in cases], dtype=np.float64) for name in SIGNALS]
    grows = ("reweighting needed", "rest", "conditional", "prominence")
    table: Array = np.column_stack(
        [np.log(column + 0.02) if name in grows else column for name, column in zip(SIGNALS, columns, strict=True)]
    )
    return table


def verdict_rows(lines: Iterable[StudyRecord]) -> list[VerdictRow]:
    """Count the verdicts by kind and sample size, on all source models and on the second half."""
    cases = select_cases(lines)
    rows = []
    for models, seeds in ((ALL, {line["seed"] for line in cases}), (SECOND_HALF, second_half_seeds(cases))):
        for kind in CASE_KINDS:
            for n in sorted({line["n"] for line in cases}):
                mine = [line for line in cases if line["seed"] in seeds and line["n"] == n and _is_kind(kind)(line)]
                counts = Counter(line["verdict"] for line in mine)
                shares = tuple(counts[verdict] / max(len(mine), 1) for verdict in VERDICTS)
                rows.append(VerdictRow(kind, n, models, len(mine), shares))
    return rows


def caution_rows(lines: Iterable[StudyRecord]) -> list[CautionRow]:
    """Return the R² of each method on each stream, and of the method that the verdict recommends for it."""
    mine = [line for line in lines if line["record"] == CAUTION]
    scores: dict[tuple[str, str], list[float]] = {}
    for line in mine:
        scores.setdefault((line["stream"], line["arm"]), []).append(line["r2"])
        if line["arm"] == BY_VERDICT[line["verdict"]]:
            scores.setdefault((line["stream"], VERDICT_METHOD), []).append(line["r2"])
    return [CautionRow(stream, name, tuple(values)) for (stream, name), values in scores.items()]


def compute_roc_curves(
    lines: Iterable[StudyRecord], question: str, signals: Sequence[str]
) -> dict[str, tuple[Array, Array, float]]:
    """Return false and true positive rates and AUC of each signal on a question, over all source models."""
    cases = select_cases(lines)
    asked = QUESTIONS[question]
    positive, negative = ([line for line in cases if test(line)] for test in (asked.positive, asked.negative))
    drawn = {}
    for signal in signals:
        above, below = oriented_signal(positive, signal), oriented_signal(negative, signal)
        drawn[signal] = (*compute_roc_curve(above, below), compute_roc(above, below).auc)
    return drawn
