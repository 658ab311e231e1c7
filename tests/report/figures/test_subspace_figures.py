import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from regtta.report.analysis import subspace_report
from regtta.report.figures import draw_significance, draw_spectrum
from regtta.report.figures.style import new_figure
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics


@pytest.fixture
def shallow():
    """Return statistics in which three of five directions vary and one raw dimension is constant."""
    features = torch.cat([small_models.table(50, inputs=3), torch.zeros(50, 1)], dim=1)
    features = torch.cat([features, features[:, :1]], dim=1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 1))
    return subspace_report(regtta.collect(model, [features]), model[0].weight)


def test_the_spectrum_shows_the_reports_numbers(reports):
    axes = draw_spectrum(reports.subspace)
    variance, rank = axes.lines
    assert variance.get_xdata().tolist() == list(range(1, 13))
    assert variance.get_ydata().tolist() == reports.subspace.variances.tolist()
    assert set(rank.get_xdata()) == {reports.subspace.rank}
    share = axes.figure.axes[-1].lines[0]
    assert share.get_ydata().tolist() == reports.subspace.cumulative.tolist()
    assert "N = 300" in axes.get_title()


def test_variances_beyond_the_rank_do_not_stretch_the_axis(shallow):
    axes = draw_spectrum(shallow)
    low, high = axes.get_ylim()
    inside = shallow.variances[: shallow.rank]
    assert low < inside.min()
    assert high > inside.max()
    assert low > shallow.variances[shallow.rank :].max()
    assert f"4 of 5 dimensions vary, rank {shallow.rank}" in axes.get_title()


def test_a_spectrum_without_any_variance_is_drawn():
    source = SourceStatistics.from_moments(Moments.from_features(torch.ones(5, 12)), head="6", fingerprint="")
    report = subspace_report(source, small_models.mlp()[6].weight)
    axes = draw_spectrum(report)
    axes.figure.canvas.draw()
    assert (axes.get_yscale(), axes.lines[0].get_ydata().tolist()) == ("linear", [0.0] * 12)
    empty = draw_significance(report)
    empty.figure.canvas.draw()
    assert len(empty.collections) == 0


def test_weights_are_drawn_against_variances_with_the_carrying_ones_filled(reports):
    report = reports.subspace
    axes = draw_significance(report, new_figure().add_subplot())
    filled, hollow = axes.collections
    carrying = sorted(d for d in report.carrying if d < 8)
    others = [d for d in range(min(8, report.rank)) if d not in carrying]
    for collection, chosen in ((filled, carrying), (hollow, others)):
        expected = np.stack([report.variances[chosen], report.weights[chosen]], axis=1)
        assert np.asarray(collection.get_offsets()) == pytest.approx(expected)
    assert len(filled.get_facecolor()) == 1
    assert len(hollow.get_facecolor()) == 0
    assert f"{report.correlation:.2f}".replace("-", "−") in axes.get_title()


def test_directions_beyond_the_rank_are_not_drawn(shallow):
    axes = draw_significance(shallow)
    assert sum(len(collection.get_offsets()) for collection in axes.collections) == shallow.rank == 3
    assert "over 5 directions, 3 drawn" in axes.get_title()
