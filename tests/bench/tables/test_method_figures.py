import json

import numpy as np
import pytest
from matplotlib.text import Annotation

from regtta.errors import OptionError
from regtta_bench.tables.method_figures import MethodScores, draw_methods, draw_streams

NAMES = ["source", "bn", "tent", "fr", "rsd", "vm", "ssa"]


def report_of(means, published=None, sds=None, streams=("clean", "noisy")):
    """Two streams; ``means`` by method, a pair each."""
    none = dict.fromkeys(means, (np.nan, np.nan))
    columns = (
        {name: np.array(pair) for name, pair in (none | (each or {})).items()} for each in (means, sds, published)
    )
    return MethodScores("R²", streams, *columns, sources=5)


@pytest.fixture
def report():
    means = {name: (0.5 + 0.02 * place, 0.3 - 0.03 * place) for place, name in enumerate(NAMES)}
    means |= {"rsd": (np.nan, 0.2), "vm": (-7.25, -3.5)}
    published = {"source": (0.45, np.nan), "ssa": (0.64, 0.25)}
    return report_of(means, published, {name: (0.01, 0.02) for name in NAMES if name != "bn"})


def marks(container):
    """Points (x, y) and the bars (from, to) around each, of an errorbar."""
    data, _, (bars,) = container.lines
    return data.get_xydata(), np.array(bars.get_segments())


def edge_texts(axes):
    """What is written at the edge, by method."""
    rows = dict(zip(axes.get_yticks(), (label.get_text() for label in axes.get_yticklabels()), strict=True))
    return {rows[text.get_position()[1]]: text.get_text() for text in axes.texts}


@pytest.mark.parametrize("stream", [0, 1])
def test_each_method_has_its_mark_its_deviation_and_the_published_number(report, stream):
    axes = draw_methods(report, stream=stream)
    rows = {label.get_text(): place for place, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)}
    assert list(rows) == NAMES
    assert list(rows.values()) == sorted(rows.values(), reverse=True)  # the first is on top
    points, bars = marks(axes.containers[0])
    shown = [name for name in NAMES if report.means[name][stream] > -1]
    assert points.tolist() == [[report.means[name][stream], rows[name]] for name in shown]
    sds = [0.0 if name == "bn" else report.sds[name][stream] for name in shown]
    assert bars[:, 0, 0] == pytest.approx(points[:, 0] - sds)
    assert bars[:, 1, 0] == pytest.approx(points[:, 0] + sds)
    (diamonds,) = [line for line in axes.lines if line.get_label() == "published"]
    printed = [name for name in NAMES if np.isfinite(report.published[name][stream])]
    assert diamonds.get_xydata().tolist() == [[report.published[name][stream], rows[name]] for name in printed]
    assert axes.get_xlabel() == f"R², {report.streams[stream]}"
    assert "mean ± sd, 5 source models" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_what_is_far_away_or_diverged_is_written_at_the_edge_and_stretches_nothing(report):
    axes = draw_methods(report)
    axes.figure.canvas.draw()
    assert edge_texts(axes) == {"rsd": "diverged", "vm": "−7.25"}
    low, high = axes.get_xlim()
    assert -0.5 < low < 0.45
    assert 0.64 < high < 1.5


def test_a_published_number_far_away_is_written_at_the_edge_too():
    means = {name: (0.5 + 0.02 * place, 0.0) for place, name in enumerate(NAMES)}
    axes = draw_methods(report_of(means, {"vm": (-685.1, np.nan), "ssa": (0.6, np.nan)}))
    assert "−685.1" in " ".join(text.get_text() for text in axes.texts)


def test_without_published_numbers_nothing_is_keyed_as_such():
    axes = draw_methods(report_of(dict.fromkeys(NAMES, (0.5, 0.4))))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mean ± sd, 5 source models"]


def test_methods_that_all_diverged_are_drawn_as_that():
    axes = draw_methods(report_of(dict.fromkeys(NAMES, (np.nan, np.nan))))
    axes.figure.canvas.draw()
    assert edge_texts(axes) == dict.fromkeys(NAMES, "diverged")


@pytest.mark.parametrize("stream", [-1, 2])
def test_a_stream_that_is_not_there_is_refused(report, stream):
    with pytest.raises(OptionError, match="between 0 and 1"):
        draw_methods(report, stream=stream)


def arrows(axes):
    return [text for text in axes.texts if isinstance(text, Annotation)]


def test_each_stream_has_a_mark_for_each_method(report):
    axes = draw_streams(report)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["clean", "noisy"]
    assert [container.get_label() for container in axes.containers] == NAMES
    for container, name in zip(axes.containers, NAMES, strict=True):
        points = container.lines[0].get_xydata()
        assert points[:, 1] == pytest.approx(report.means[name], nan_ok=True)
        assert np.round(points[:, 0]).tolist() == [0, 1]  # beside each other, each by its stream
    assert len({container.lines[0].get_xdata()[0] for container in axes.containers}) == len(NAMES)
    assert axes.get_ylabel() == "R²"
    assert axes.get_title() == "mean ± sd over 5 source models"


def test_what_is_far_below_is_an_arrow_with_its_number_on_the_lower_edge(report):
    axes = draw_streams(report)
    axes.figure.canvas.draw()
    low, high = axes.get_ylim()
    assert -1 < low < min(report.means["ssa"])
    assert high > 0.62
    assert [arrow.get_text() for arrow in arrows(axes)] == ["−7.25", "−3.50"]
    assert [round(arrow.xy[0]) for arrow in arrows(axes)] == [0, 1]
    assert {arrow.xy[1] for arrow in arrows(axes)} == {low}


def test_no_score_is_out_of_sight_without_a_word():
    means = {name: (-2.0 + 0.02 * place, -2.1) for place, name in enumerate(NAMES)}
    axes = draw_streams(report_of(means | {"ssa": (0.9, -2.0)}))
    low, high = axes.get_ylim()
    inside = low <= 0.9 <= high
    assert inside or "0.90" in [arrow.get_text() for arrow in arrows(axes)]


def test_streams_on_which_all_diverged_are_drawn_empty():
    axes = draw_streams(report_of(dict.fromkeys(NAMES, (np.nan, np.nan))))
    axes.figure.canvas.draw()
    assert axes.get_ylim() == (0, 1)
    assert axes.texts[:] == []


def test_scores_are_restored_from_json():
    scores = MethodScores("R²", ("clean", "noisy"), *({"ssa": np.array([0.5, np.nan])} for _ in range(3)), 5)
    stored = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert MethodScores.from_dict(stored).to_dict() == stored
