import numpy as np
import pytest

import regtta
from helpers import small_models
from regtta.errors import OptionError
from regtta.report.analysis import record_stream
from regtta.report.figures import draw_stream, stream_panels


def lines(axes):
    """Return the lines of the quantity, without the reference level and the crosses."""
    return [line for line in axes.lines if line.get_marker() not in ("None", "x")]


@pytest.mark.parametrize("quantity", ["loss", "gradient_norm", "displacement", "online_r2"])
def test_a_quantity_is_drawn_over_the_steps(reports, quantity):
    (line,) = lines(draw_stream(reports.stream, quantity))
    assert line.get_xdata().tolist() == list(range(6))
    np.testing.assert_array_equal(line.get_ydata(), getattr(reports.stream, quantity))


@pytest.mark.parametrize(("quantity", "level"), [("shift", 0), ("spread", 1)])
def test_moments_have_a_line_for_each_direction_and_the_sources_level(reports, quantity, level):
    axes = draw_stream(reports.stream, quantity)
    assert len(lines(axes)) == 3
    for d, line in enumerate(lines(axes)):
        np.testing.assert_array_equal(line.get_ydata(), getattr(reports.stream, quantity)[:, d])
        assert line.get_label() == f"direction {d}"
    (flat,) = [line for line in axes.lines if line.get_marker() == "None"]
    assert set(flat.get_ydata()) == {level}


def test_rejected_batches_are_marked_by_crosses(reports):
    (crosses,) = [line for line in draw_stream(reports.stream, "loss").lines if line.get_marker() == "x"]
    assert crosses.get_xdata().tolist() == [2]


def test_panels_show_the_recorded_quantities(reports):
    figure = stream_panels(reports.stream)
    assert len(figure.axes) == 6
    about = " ".join(figure.get_supxlabel().split())
    assert "ssa: 6 batches, 120 samples; crosses: 1 not learned from (20 of 20 samples are not finite)" in about
    assert "leaves out 20 predictions" in about
    assert figure.axes[-1].get_xlabel() == "batch, from 0"
    assert figure.axes[0].get_xlabel() == ""


def test_a_stream_without_loss_labels_or_source_has_one_panel():
    adapter = regtta.Adapter(small_models.mlp(), regtta.BNAdapt())
    figure = stream_panels(record_stream(adapter, small_models.table(60).split(20)))
    assert [axes.get_ylabel().split("\n")[0] for axes in figure.axes] == ["displacement"]
    assert "all learned from" in figure.get_supxlabel()


def test_chosen_quantities_keep_their_order(reports):
    figure = stream_panels(reports.stream, ["online_r2", "loss"])
    assert [axes.get_ylabel() for axes in figure.axes] == ["online R²\nso far", "loss"]


def test_invalid_arguments_are_rejected(reports):
    with pytest.raises(OptionError, match="Did you mean 'loss'"):
        draw_stream(reports.stream, "los")
    with pytest.raises(OptionError, match="found none"):
        stream_panels(reports.stream, [])
