import dataclasses

import numpy as np

from regtta.report.figures import draw_reconstruction


def test_each_method_has_its_curve(reports):
    report = reports.reconstruction
    axes = draw_reconstruction(report)
    curves = {line.get_label(): line for line in axes.lines}
    for name in ("Source", "Moved"):
        assert curves[name].get_xdata().tolist() == report.bases.tolist()
        assert curves[name].get_ydata().tolist() == report.errors[name].tolist()
    assert set(curves[f"rank {report.rank}"].get_xdata()) == {report.rank}
    assert curves["Source"].get_marker() != curves["Moved"].get_marker()
    assert axes.get_title() == "mean over 120 samples"
    assert {text.get_text() for text in axes.get_legend().get_texts()} == set(curves)


def test_a_diverged_method_is_listed(reports):
    report = dataclasses.replace(reports.reconstruction, errors={"FR": np.full(13, np.nan)}, counts={"FR": 7})
    axes = draw_reconstruction(report)
    assert axes.lines[0].get_label() == "FR (not finite)"
    axes.figure.canvas.draw()
