import importlib
import json
import pkgutil
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import pytest

from regtta.errors import InvalidFileError
from regtta.metrics import Scores
from regtta.report import analysis
from regtta.report.analysis.base import AnalysisResult, Array
from regtta.report.analysis.stream_analysis import RunningScores


def report_classes():
    """Return every report class of the package, after importing all of its modules."""
    for module in pkgutil.iter_modules(analysis.__path__, f"{analysis.__name__}."):
        importlib.import_module(module.name)
    return {kind for kind in AnalysisResult.__subclasses__() if kind.__module__.startswith(analysis.__name__)}


@pytest.fixture(scope="module")
def made(case, reports):
    """Return one report of every class, by class."""
    two = {"before": case.before, "after": case.after}
    found = [
        *(reports.subspace, reports.reconstruction, reports.normality, reports.histograms, reports.clouds),
        *(reports.gradients, reports.predictions, reports.stream),
        *(reports.clouds.transport, reports.histograms.raw[0], reports.normality.raw),
        analysis.shift_report(case.source, two),
        analysis.output_report(case.source, case.model[-1], {"before": case.model(case.target)}),
        RunningScores("sorted", {"ssa": np.array([0.5, np.nan])}),
    ]
    return {type(report): report for report in found}


def assert_same(one, other):
    """Check that types and numbers are equal at every level; NaN equals NaN."""
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
    elif is_dataclass(one):
        assert type(one) is type(other)
        for item in fields(one):
            assert_same(getattr(one, item.name), getattr(other, item.name))
    elif isinstance(one, dict | tuple):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for mine, theirs in zip(*((x.items() if isinstance(x, dict) else x) for x in (one, other)), strict=True):
            assert_same(mine, theirs)
    elif isinstance(one, float) and np.isnan(one):
        assert np.isnan(other)
    else:
        assert type(one) is type(other)
        assert one == other


def through_json(plain):
    return json.loads(json.dumps(plain, allow_nan=False))


def test_every_class_is_covered(made):
    assert made.keys() == report_classes()


@pytest.mark.parametrize("name", sorted(kind.__name__ for kind in report_classes()))
def test_every_report_round_trips_through_json(made, name):
    (report,) = (report for kind, report in made.items() if kind.__name__ == name)
    back = type(report).from_dict(through_json(report.to_dict()))
    assert_same(report, back)
    assert back.to_dict() == report.to_dict()


@dataclass(frozen=True, eq=False)
class Everything(AnalysisResult):
    numbers: Array
    scores: Scores
    alone: float
    maybe: float | None
    words: tuple[str, int]
    inner: tuple["AnalysisResult", ...] = ()


def test_null_becomes_nan_for_numbers_and_none_for_optional_values():
    scores = Scores(r2=float("nan"), rmse=1.0, mae=float("inf"), pearson=0.0, count=4)
    report = Everything(np.array([[np.nan, 1.0], [-np.inf, 2.0]]), scores, float("nan"), None, ("x", 3))
    back = Everything.from_dict(through_json(report.to_dict()))
    np.testing.assert_array_equal(back.numbers, [[np.nan, 1.0], [np.nan, 2.0]])
    assert np.isnan([back.alone, back.scores.r2, back.scores.mae]).all()
    assert (back.maybe, back.words, back.scores.count) == (None, ("x", 3), 4)


def test_clouds_without_distances_round_trip(reports):
    plain = through_json(reports.clouds.to_dict()) | {"transport": None}
    assert analysis.Clouds.from_dict(plain).transport is None


def test_unknown_fields_are_ignored(made):
    report = made[analysis.GradientNorms]
    assert_same(report, analysis.GradientNorms.from_dict(report.to_dict() | {"colour": "red"}))


@pytest.mark.parametrize("foreign", [[], None, 3, "text", {}])
def test_missing_fields_are_rejected(foreign):
    with pytest.raises(InvalidFileError, match="Expected the fields of ShiftReport"):
        analysis.ShiftReport.from_dict(foreign)


def test_missing_nested_fields_are_reported(made):
    plain = made[analysis.PredictionReport].to_dict()
    del plain["scores"]["rmse"]
    with pytest.raises(InvalidFileError, match=r"fields of Scores, found \['count', 'mae', 'pearson', 'r2'\]"):
        analysis.PredictionReport.from_dict(plain)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("means", [1.0]),
        ("means", None),
        ("means", {"before": "text"}),
        ("means", {"before": [[1.0], [1.0, 2.0]]}),
        ("spreads", {"before": {"deep": 1}}),
    ],
)
def test_fields_of_another_type_are_rejected(made, field, value):
    plain = made[analysis.ShiftReport].to_dict() | {field: value}
    with pytest.raises(InvalidFileError):
        analysis.ShiftReport.from_dict(plain)


@pytest.mark.parametrize(("field", "value"), [("sizes", [None]), ("reasons", None), ("learned", ["x", [1]])])
def test_list_elements_of_another_type_are_rejected(made, field, value):
    plain = made[analysis.StreamRecord].to_dict() | {field: value}
    with pytest.raises(InvalidFileError):
        analysis.StreamRecord.from_dict(plain)
