import dataclasses
import math

import numpy as np
import pytest

from regtta.errors import OptionError
from regtta.report.analysis import OutputReport
from regtta.report.figures import draw_outputs

EDGES = np.array([[-2.0, -1.0, 0.0, 1.0], [0.0, 10.0, 20.0, 30.0]])


@pytest.fixture
def report():
    return OutputReport(
        edges=EDGES,
        densities={"before": np.array([[0.5, 0.5, 0.0], [0.1, 0.0, 0.0]]), "after": np.array([[0.0, 0.2, 0.8]] * 2)},
        means={"before": np.array([-1.0, 4.0]), "after": np.array([0.7, 23.4])},
        sds={"before": np.array([0.5, 2.0]), "after": np.array([0.25, 3.0])},
        counts={"before": 70, "after": 70},
        source_means=np.array([-0.25, 12.0]),
        source_sds=np.array([0.5, 4.0]),
    )


@pytest.mark.parametrize("output", [0, 1])
def test_steps_and_curve_are_the_reports_numbers(report, output):
    axes = draw_outputs(report, output=output, unit="years")
    for patch, name in zip(axes.patches, ("before", "after"), strict=True):
        values, edges, _ = patch.get_data()
        assert values.tolist() == report.densities[name][output].tolist()
        assert edges.tolist() == EDGES[output].tolist()
    (curve,) = axes.collections
    points = curve.get_paths()[0].vertices
    mean, sd = report.source_means[output], report.source_sds[output]
    top = points[points[:, 1].argmax()]
    assert top[0] == pytest.approx(mean, abs=0.05 * sd)
    assert top[1] == pytest.approx(1 / (sd * math.sqrt(2 * math.pi)), rel=1e-3)
    # One standard deviation from the mean, a Gaussian has fallen to 1/√e of its maximum.
    near = points[np.abs(points[:, 0] - (mean + sd)).argmin()]
    assert near[1] / top[1] == pytest.approx(math.exp(-0.5), abs=0.03)
    assert axes.get_xlabel() == "prediction (years)"
    assert axes.get_title() == f"output {output}, N = 70"


def test_the_legend_states_means_and_deviations_with_a_typographic_minus(report):
    named = [text.get_text() for text in draw_outputs(report).get_legend().get_texts()]
    assert named == ["before: −1 ± 0.5", "after: 0.7 ± 0.25", "source: −0.25 ± 0.5"]


def test_before_and_after_differ_in_more_than_colour(report):
    before, after = draw_outputs(report).patches
    assert before.get_linestyle() != after.get_linestyle()


def test_differing_counts_are_both_stated(report):
    one = {
        field.name: value[:1] if isinstance(value := getattr(report, field.name), np.ndarray) else value
        for field in dataclasses.fields(report)
    }
    axes = draw_outputs(OutputReport(**one | {"counts": {"before": 70, "after": 68}}))
    assert axes.get_title() == "N = 68 or 70"


def test_a_constant_source_has_no_curve(report):
    axes = draw_outputs(dataclasses.replace(report, source_sds=np.zeros(2)))
    axes.figure.canvas.draw()
    assert len(axes.collections) == 0
    assert len(axes.get_legend().get_texts()) == 2


@pytest.mark.parametrize("output", [-1, 2])
def test_a_missing_output_is_rejected(report, output):
    with pytest.raises(OptionError, match="between 0 and 1"):
        draw_outputs(report, output=output)
