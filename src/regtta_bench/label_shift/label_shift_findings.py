"""Findings of the label-shift study, including combined signals."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from regtta_bench.label_shift.cases import KINDS
from regtta_bench.label_shift.false_alarms import BY_VERDICT, CAUTION
from regtta_bench.label_shift.measurements import CASE, SIGNALS
from regtta_bench.label_shift.roc import Array, Roc, curve_of, roc_of

_RIDGE = 1e-2  # on standardised weights, which are not finite for separable classes without it
_STEPS = 50


class Logistic:
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


Line = Mapping[str, Any]
Test = Callable[[Line], bool]

MOVED = 0.25  # change of the mean label, in source standard deviations, that counts as a label shift
ALL, SECOND = "all", "second half"
COMBINATION = "logistic regression"
VERDICTS = ("none", "inputs", "labels", "both or unclear")
FOLLOWED = "by the verdict"


@dataclass(frozen=True)
class Question:
    """Binary classification of cases that a signal has to solve.

    Attributes:
        positive: predicate of positive cases.
        negative: predicate of negative cases.
    """

    positive: Test
    negative: Test


def _kind(*kinds: str) -> Test:
    return lambda line: line["kind"] in kinds and (not line["mix"] or abs(line["moved"]) >= MOVED)


def _hurt(arm: str, by: float) -> Question:
    return Question(
        lambda line: "gain" in line and line["gain"][arm] < -by,
        lambda line: "gain" in line and line["gain"][arm] >= -by,
    )


def _mild(line: Line) -> bool:
    return bool(line["kind"] == "covariate" and line["level"] == 0)


QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {
        "labels moved at all": Question(_kind("label", "mixed"), _kind("none", "covariate")),
        "labels, not inputs": Question(_kind("label"), _kind("covariate")),
        "labels, not mild inputs": Question(_kind("label"), _mild),
        "label against none": Question(_kind("label"), _kind("none")),
        "mixed against covariate": Question(_kind("mixed"), _kind("covariate")),
        "label against mixed": Question(_kind("label"), _kind("mixed")),
        "SSA hurts": _hurt("ssa", 0.0),
        "SSA hurts by 0.05": _hurt("ssa", 0.05),
        "SSA with BN source hurts": _hurt("ssa, BN source", 0.0),
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
    """R² of one arm on one stream, one value per source model."""

    stream: str
    arm: str
    r2: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over source models."""
        return statistics.fmean(self.r2)


def cases_in(lines: Iterable[Line]) -> list[Line]:
    """Return the records of constructed cases."""
    return [line for line in lines if line["record"] == CASE]


def second_half(cases: Sequence[Line]) -> frozenset[int]:
    """Return the seeds of the source models on which no thresholds were chosen."""
    seeds = sorted({line["seed"] for line in cases})
    return frozenset(seeds[(len(seeds) + 1) // 2 :])


def roc_rows(lines: Iterable[Line]) -> list[RocRow]:
    """Compute the ROC of every signal on every question.

    One question is also split by sample size. The combination of all signals is evaluated on the second half.
    """
    cases = cases_in(lines)
    later = [line for line in cases if line["seed"] in second_half(cases)]
    rows = []
    for name, question in QUESTIONS.items():
        for n in (0, *(sorted({line["n"] for line in cases}) if name == "labels, not inputs" else ())):
            sized = [line for line in cases if n in (0, line["n"])]
            rows += _rows_of(name, question, sized, ALL, n)
        rows += _rows_of(name, question, later, SECOND, 0)
        combined = _combined(question, cases)
        rows += [] if combined is None else [RocRow(name, COMBINATION, SECOND, 0, combined)]
    return rows


def _rows_of(name: str, question: Question, cases: Sequence[Line], models: str, n: int) -> list[RocRow]:
    positive, negative = ([line for line in cases if test(line)] for test in (question.positive, question.negative))
    if min(len(positive), len(negative)) < 2:
        return []
    return [
        RocRow(name, signal, models, n, roc_of(pointing(positive, signal), pointing(negative, signal)))
        for signal in SIGNALS
    ]


def pointing(cases: Sequence[Line], signal: str) -> Array:
    """Return a signal of every case ``(N,)``, with its sign such that larger values indicate label shift."""
    return SIGNALS[signal] * np.array([line["signals"][signal] for line in cases], dtype=np.float64)


def _combined(question: Question, cases: Sequence[Line]) -> Roc | None:
    tables = []
    later = second_half(cases)
    for wanted in (False, True):
        mine = [line for line in cases if (line["seed"] in later) == wanted]
        positive, negative = ([line for line in mine if test(line)] for test in (question.positive, question.negative))
        if min(len(positive), len(negative)) < 2:
            return None
        tables += [_table(positive), _table(negative)]
    truth = np.concatenate([np.ones(len(tables[0])), np.zeros(len(tables[1]))])
    model = Logistic(np.concatenate(tables[:2]), truth)
    return roc_of(model(tables[2]), model(tables[3]))


def _table(cases: Sequence[Line]) -> Array:
    """Return all signals ``(N, F)``; unbounded ones as logarithms."""
    columns = [np.array([line["signals"][name] for line in cases], dtype=np.float64) for name in SIGNALS]
    grows = ("reweighting needed", "rest", "conditional", "prominence")
    table: Array = np.column_stack(
        [np.log(column + 0.02) if name in grows else column for name, column in zip(SIGNALS, columns, strict=True)]
    )
    return table


def verdict_rows(lines: Iterable[Line]) -> list[VerdictRow]:
    """Count the verdicts by kind and sample size, on all source models and on the second half."""
    cases = cases_in(lines)
    rows = []
    for models, seeds in ((ALL, {line["seed"] for line in cases}), (SECOND, second_half(cases))):
        for kind in KINDS:
            for n in sorted({line["n"] for line in cases}):
                mine = [line for line in cases if line["seed"] in seeds and line["n"] == n and _kind(kind)(line)]
                counts = Counter(line["verdict"] for line in mine)
                shares = tuple(counts[verdict] / max(len(mine), 1) for verdict in VERDICTS)
                rows.append(VerdictRow(kind, n, models, len(mine), shares))
    return rows


def caution_rows(lines: Iterable[Line]) -> list[CautionRow]:
    """Return the R² of each arm on each stream, and of the arm that follows the verdict on it."""
    mine = [line for line in lines if line["record"] == CAUTION]
    found: dict[tuple[str, str], list[float]] = {}
    for line in mine:
        found.setdefault((line["stream"], line["arm"]), []).append(line["r2"])
        if line["arm"] == BY_VERDICT[line["verdict"]]:
            found.setdefault((line["stream"], FOLLOWED), []).append(line["r2"])
    return [CautionRow(stream, arm, tuple(values)) for (stream, arm), values in found.items()]


def curves(lines: Iterable[Line], question: str, signals: Sequence[str]) -> dict[str, tuple[Array, Array, float]]:
    """Return false and true positive rates and AUC of each signal on a question, over all source models."""
    cases = cases_in(lines)
    asked = QUESTIONS[question]
    positive, negative = ([line for line in cases if test(line)] for test in (asked.positive, asked.negative))
    drawn = {}
    for signal in signals:
        above, below = pointing(positive, signal), pointing(negative, signal)
        drawn[signal] = (*curve_of(above, below), roc_of(above, below).auc)
    return drawn
