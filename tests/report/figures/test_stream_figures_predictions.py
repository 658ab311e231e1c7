import numpy as np
import pytest
import torch

from regtta.errors import OptionError
from regtta.report.analysis import prediction_report
from regtta.report.figures import draw_predictions


def test_points_lie_at_label_and_prediction(reports):
    report = reports.predictions
    axes = draw_predictions(report, output=1, unit="years")
    points = np.asarray(axes.collections[0].get_offsets())
    assert points.tolist() == np.stack([report.labels[:, 1], report.predictions[:, 1]], axis=1).tolist()
    x, y = axes.lines[0].get_data()
    assert list(x) == list(y) == [report.labels[:, 1].min(), report.labels[:, 1].max()]
    assert f"R² {report.scores.r2:.3f}".replace("-", "−") in axes.get_title()
    assert "output 1" in axes.get_title()
    assert axes.get_xlabel() == "label (years)"


def test_many_points_become_hexagons_that_count_them_all():
    draw = torch.Generator().manual_seed(0)
    labels = torch.randn(4000, generator=draw)
    predictions = labels + 0.1 * torch.randn(4000, generator=draw)
    predictions[:5] = torch.nan
    axes = draw_predictions(prediction_report(predictions, labels))
    assert axes.collections[0].get_array().sum() == 3995
    assert [other.get_ylabel() for other in axes.figure.axes if other is not axes] == ["samples"]


@pytest.mark.parametrize("output", [-1, 2])
def test_a_missing_output_is_rejected(reports, output):
    with pytest.raises(OptionError, match="between 0 and 1"):
        draw_predictions(reports.predictions, output=output)
