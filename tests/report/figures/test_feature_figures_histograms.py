import numpy as np
import pytest
from scipy import stats

from regtta.report.figures import draw_gradient_norms, draw_histogram, draw_normality, histogram_grid


def test_bars_and_gaussian_are_those_of_the_histogram(reports):
    histogram = reports.histograms.raw[0]
    axes = draw_histogram(histogram)
    bars = axes.patches[0].get_data()
    assert bars.values.tolist() == histogram.density.tolist()
    assert bars.edges.tolist() == histogram.edges.tolist()
    x, height = axes.lines[0].get_data()
    assert height == pytest.approx(stats.norm.pdf(x, histogram.mean, histogram.sd))
    assert x[0] <= histogram.edges[0]
    assert x[-1] >= histogram.edges[-1]
    assert np.trapezoid(height, x) == pytest.approx(1, abs=2e-3)
    assert axes.get_title() == histogram.name
    assert f"KS {histogram.distance:.2f}" in axes.texts[0].get_text()


def test_the_grid_has_raw_dimensions_above_projected_ones(reports):
    figure = histogram_grid(reports.histograms)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [histogram.name for histogram in (*reports.histograms.raw, *reports.histograms.projected)]
    rows = [axes.get_subplotspec().rowspan.start for axes in figure.axes]
    assert rows == [0, 0, 0, 1, 1, 1]
    assert "120 samples" in figure.get_supxlabel()
    assert "seed 0" in figure.get_supxlabel()


def test_distances_are_drawn_in_order(reports):
    axes = draw_normality(reports.normality)
    raw, projected, level = axes.lines
    assert raw.get_ydata().tolist() == sorted(reports.normality.raw.distance)
    assert projected.get_ydata().tolist() == sorted(reports.normality.projected.distance)
    assert set(level.get_ydata()) == {reports.normality.critical}
    assert f"{reports.normality.nearer:.2f}" in axes.get_title()
    assert f"median {reports.normality.raw_summary.distance:.2f}" in raw.get_label()


def test_gradient_norms_are_counted_as_in_the_report(reports):
    axes = draw_gradient_norms(reports.gradients)
    bars = axes.patches[0].get_data()
    assert bars.values.tolist() == reports.gradients.counts.tolist()
    assert bars.edges.tolist() == reports.gradients.edges.tolist()
    assert axes.get_title() == "12 raw dimensions, subspace of 3"
