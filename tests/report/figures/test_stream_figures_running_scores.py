import numpy as np
import pytest

from regtta.errors import OptionError
from regtta.report.analysis.stream_analysis import RunningScores
from regtta.report.figures import draw_running_scores, running_score_panels


def scores(kind="sorted", slices=20):
    values = np.linspace(0, 1, slices)
    return RunningScores(kind, {"Source": values, "ssa, plain": values / 2, "ssa, safe": values**2})


def test_every_line_is_drawn_over_the_middles_of_its_slices():
    axes = draw_running_scores(scores())
    lines = {line.get_label(): line for line in axes.lines}
    for name, values in scores().lines.items():
        x, y = lines[name].get_data()
        np.testing.assert_allclose(x, np.arange(0.025, 1, 0.05))
        np.testing.assert_allclose(y, values)
    looks = {
        (line.get_color(), line.get_marker(), str(line.get_linestyle())) for line in map(lines.get, scores().lines)
    }
    assert len(looks) == 3
    assert axes.get_title() == "sorted"


@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_there_is_a_panel_for_each_kind_and_one_legend(count):
    figure = running_score_panels([scores(f"kind {number}") for number in range(count)], "Made up.")
    drawn = [axes.get_title() for axes in figure.axes if axes.axison]
    assert drawn == [f"kind {number}" for number in range(count)]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Source", "ssa, plain", "ssa, safe"]
    labelled = [axes.get_xlabel() for axes in figure.axes if axes.axison]
    assert labelled[-1] == "share of the stream"


def test_scores_round_trip_through_json():
    again = RunningScores.from_dict(scores().to_dict())
    np.testing.assert_allclose(again.lines["Source"], scores().lines["Source"])


def test_nothing_to_draw_is_an_error():
    with pytest.raises(OptionError, match="at least one kind of stream"):
        running_score_panels([], "")
