import numpy as np

from regtta.report.figures import save_figure
from regtta_bench.label_shift.roc import draw_roc, roc_panels

CURVES = {
    "one": (np.array([0.0, 0.2, 1.0]), np.array([0.0, 0.9, 1.0]), 0.85),
    "other": (np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.5, 1.0]), 0.5),
}


def test_every_signal_is_a_curve_with_its_area_in_the_key():
    axes = draw_roc(CURVES, title="labels, not inputs")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one, 0.85", "other, 0.50"]
    chance, *drawn = axes.get_lines()
    np.testing.assert_array_equal(chance.get_xdata(), chance.get_ydata())
    for line, (false, true, _) in zip(drawn, CURVES.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), false)
        np.testing.assert_array_equal(line.get_ydata(), true)
    assert len({(line.get_color(), line.get_marker()) for line in drawn}) == 2
    assert axes.get_title() == "labels, not inputs"


def test_questions_stand_side_by_side_over_what_was_counted(tmp_path):
    figure = roc_panels({"first": CURVES, "second": CURVES}, "4,026 shifts.")
    assert [axes.get_title() for axes in figure.axes] == ["first", "second"]
    assert figure.axes[1].get_ylabel() == ""
    assert figure._supxlabel.get_text() == "4,026 shifts."
    for ending in ("png", "svg"):
        assert save_figure(figure, tmp_path / f"roc.{ending}").stat().st_size > 1000
