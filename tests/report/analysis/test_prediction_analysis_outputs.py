import json

import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import BatchError, HeadMismatchError, OptionError
from regtta.report.analysis import output_report


@pytest.fixture(scope="module")
def two():
    """Return a model of two outputs, its statistics, its head, and its predictions on source and target."""
    model = small_models.mlp(outputs=2)
    source = regtta.collect(model, small_models.table(300).split(50))
    with torch.no_grad():
        return (
            model,
            source,
            model[-1],
            model(small_models.table(300)),
            model(small_models.table(120, shift=1.0, seed=2)),
        )


def test_the_sources_moments_are_those_of_its_predictions(two):
    _, source, head, on_source, _ = two
    report = output_report(source, head, {"source": on_source})
    predicted = small_models.numpy64(on_source)
    assert report.source_means == pytest.approx(predicted.mean(axis=0), rel=1e-5, abs=1e-6)
    assert report.source_sds == pytest.approx(predicted.std(axis=0, ddof=1), rel=1e-5)
    assert report.means["source"] == pytest.approx(report.source_means, rel=1e-5, abs=1e-6)
    assert report.sds["source"] == pytest.approx(report.source_sds, rel=1e-5)


def test_moments_are_closed_forms_of_weight_and_covariance(two):
    _, source, head, _, on_target = two
    report = output_report(source, head, {"target": on_target})
    W, b = small_models.numpy64(head.weight), small_models.numpy64(head.bias)
    assert report.source_means == pytest.approx(W @ small_models.numpy64(source.mean) + b)
    assert report.source_sds**2 == pytest.approx(np.diag(W @ small_models.numpy64(source.covariance()) @ W.T))


def test_moments_and_histograms_are_numpys_over_bins_shared_by_all(two):
    _, source, head, on_source, on_target = two
    given = {"before": on_source, "after": on_target}
    report = output_report(source, head, given, bins=7)
    whole = small_models.numpy64(torch.cat(list(given.values())))
    assert report.edges.shape == (2, 8)
    for output in range(2):
        edges = np.linspace(whole[:, output].min(), whole[:, output].max(), 8)
        assert report.edges[output] == pytest.approx(edges)
        for name, values in given.items():
            column = small_models.numpy64(values)[:, output]
            assert report.means[name][output] == pytest.approx(column.mean())
            assert report.sds[name][output] == pytest.approx(column.std(ddof=1))
            counts = np.histogram(column, bins=report.edges[output])[0]
            assert report.densities[name][output] == pytest.approx(counts / len(column) / np.diff(edges))
    assert report.counts == {"before": 300, "after": 120}


def test_non_finite_predictions_are_excluded(two):
    _, source, head, _, on_target = two
    spoilt = torch.cat([on_target, torch.tensor([[torch.nan, 1.0], [torch.inf, 0.0]])])
    spoilt, whole = (output_report(source, head, {"after": rows}) for rows in (spoilt, on_target))
    assert spoilt.counts == {"after": 120}
    assert spoilt.to_dict() == whole.to_dict()
    json.dumps(spoilt.to_dict(), allow_nan=False)


def test_flat_outputs_and_heads_without_bias():
    rows = small_models.table(80, inputs=3)
    head = nn.Linear(3, 1, bias=False)
    source = regtta.collect(nn.Sequential(head), [rows])
    flat, tall = (output_report(source, head, {"x": head(rows).reshape(shape)}) for shape in ((-1,), (-1, 1)))
    assert flat.to_dict() == tall.to_dict()
    assert flat.source_means == pytest.approx(small_models.numpy64(head.weight) @ small_models.numpy64(source.mean))


def test_a_constant_model_fills_one_bin(two):
    _, source, head, _, _ = two
    report = output_report(source, head, {"after": torch.full((9, 2), 3.0)}, bins=5)
    assert (report.densities["after"] > 0).sum(axis=1).tolist() == [1, 1]
    assert report.sds["after"].tolist() == [0, 0]


def test_a_head_of_another_width_is_rejected(two):
    _, source, _, _, on_target = two
    with pytest.raises(HeadMismatchError, match=f"takes 5 features.*of {source.dimensions}"):
        output_report(source, nn.Linear(5, 2), {"x": on_target})


@pytest.mark.parametrize(
    ("rows", "found"),
    [(torch.zeros(5, 3), "5 of 3"), (torch.zeros(1, 2), "1 of 2"), (torch.full((4, 2), torch.nan), "0 of 2")],
)
def test_invalid_predictions_are_rejected_by_name(two, rows, found):
    _, source, head, _, _ = two
    with pytest.raises(BatchError, match=f"of 2 outputs for 'after', found {found}"):
        output_report(source, head, {"after": rows})


def test_an_invalid_number_of_bins_is_rejected(two):
    _, source, head, _, on_target = two
    with pytest.raises(OptionError, match="bins"):
        output_report(source, head, {"x": on_target}, bins=0)
