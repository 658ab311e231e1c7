import dataclasses

import numpy as np
import pytest

from regtta.errors import OptionError
from regtta.report.figures import cloud_panels, draw_cloud


def test_points_are_those_of_the_report(reports):
    axes = draw_cloud(reports.clouds, "Moved")
    source, target = axes.collections
    assert np.asarray(source.get_offsets()).tolist() == reports.clouds.source.tolist()
    assert np.asarray(target.get_offsets()).tolist() == reports.clouds.targets["Moved"].tolist()
    assert axes.get_title() == f"Moved: OT {reports.clouds.transport.distances['Moved']:#.3g}"
    assert (axes.get_xlabel(), axes.get_ylabel()) == reports.clouds.axes


def test_panels_share_their_axes(reports):
    figure = cloud_panels(reports.clouds)
    first, second = figure.axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    first.set_xlim(-99, 99)
    assert second.get_xlim() == (-99, 99)
    about = " ".join(figure.get_supxlabel().split())
    assert "seed 0" in about
    assert f"{reports.clouds.transport.floor:#.3g} between two halves" in about


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_panels_are_laid_out_in_rows(reports, count, shape):
    targets = {f"method {place}": reports.clouds.targets["Source"] for place in range(count)}
    figure = cloud_panels(dataclasses.replace(reports.clouds, targets=targets, transport=None))
    assert [axes.get_title() for axes in figure.axes] == list(targets)
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == shape
    assert "learned on the source" in " ".join(figure.get_supxlabel().split())


def test_an_unknown_method_is_rejected(reports):
    with pytest.raises(OptionError, match="Did you mean 'Moved'"):
        draw_cloud(reports.clouds, "Movd")
