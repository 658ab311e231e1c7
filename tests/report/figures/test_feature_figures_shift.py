import numpy as np
import pytest

from regtta.errors import OptionError
from regtta.report.analysis import ShiftReport
from regtta.report.figures import draw_shift
from regtta.report.figures.style import new_figure


def report_of(directions):
    draw = np.random.default_rng(0)
    columns = [{name: draw.normal(size=directions) for name in ("before", "after")} for _ in range(3)]
    return ShiftReport(*columns, counts={"before": 70, "after": 69})


@pytest.mark.parametrize(("moment", "level"), [("means", 0), ("spreads", 1)])
def test_marks_are_the_reports_numbers_around_the_sources_level(moment, level):
    report = report_of(4)
    axes = draw_shift(report, moment)
    source, before, after = axes.lines
    assert set(source.get_ydata()) == {level}
    for line, name in ((before, "before"), (after, "after")):
        assert line.get_xdata().tolist() == [0, 1, 2, 3]
        assert line.get_ydata().tolist() == getattr(report, moment)[name].tolist()
        assert line.get_linestyle() == "None"
    assert before.get_marker() != after.get_marker()
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == ["source", "before, N = 70", "after, N = 69"]
    assert axes.get_title() == "first 4 of 4 directions"


def test_the_moments_have_different_labels_and_means_are_the_default():
    assert draw_shift(report_of(2)).get_ylabel() == "mean (source sd)"
    assert draw_shift(report_of(2), "spreads").get_ylabel() == "sd / source's sd"


def test_many_directions_are_truncated_as_the_title_states():
    report = report_of(64)
    axes = draw_shift(report, "means", new_figure().add_subplot())
    assert axes.lines[1].get_ydata().tolist() == report.means["before"][:30].tolist()
    assert axes.get_title() == "first 30 of 64 directions"


def test_non_finite_values_leave_a_gap():
    report = report_of(3)
    report.means["after"][1] = np.nan
    axes = draw_shift(report)
    axes.figure.canvas.draw()
    assert np.isnan(axes.lines[2].get_ydata()).tolist() == [False, True, False]


def test_an_unknown_moment_is_rejected():
    with pytest.raises(OptionError, match="Did you mean 'spreads'"):
        draw_shift(report_of(2), "spread")
