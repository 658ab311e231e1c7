import json
from dataclasses import dataclass

import numpy as np

from regtta.metrics import Scores
from regtta.report.analysis.base import AnalysisResult


@dataclass(frozen=True, eq=False)
class Everything(AnalysisResult):
    numbers: np.ndarray
    flags: np.ndarray
    by_name: dict
    scores: Scores
    words: tuple
    alone: float
    nothing: None = None


def test_values_become_json_and_non_finite_numbers_none():
    report = Everything(
        numbers=np.array([[1.0, np.nan], [np.inf, 2.0]]),
        flags=np.array([True, False]),
        by_name={"a": np.float64("-inf"), "b": np.int64(3)},
        scores=Scores(r2=float("nan"), rmse=1.0, mae=0.5, pearson=0.0, count=4),
        words=("x", "y"),
        alone=float("inf"),
    )
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False)) == {
        "numbers": [[1.0, None], [None, 2.0]],
        "flags": [True, False],
        "by_name": {"a": None, "b": 3},
        "scores": {"r2": None, "rmse": 1.0, "mae": 0.5, "pearson": 0.0, "count": 4},
        "words": ["x", "y"],
        "alone": None,
        "nothing": None,
    }


def test_reports_are_compared_by_identity():
    one, other = (Everything(np.ones(2), np.ones(2), {}, None, (), value) for value in (1.0, 2.0))
    assert one != other
