import json

import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import regtta
from helpers import small_models
from regtta.errors import BatchError
from regtta.report.analysis import predict_and_score, prediction_report


def test_scores_agree_with_scikit_learn():
    predictions, labels = small_models.table(60, inputs=2), small_models.table(60, inputs=2, seed=3)
    report = prediction_report(predictions, labels)
    assert report.scores.r2 == pytest.approx(r2_score(labels, predictions))
    assert report.scores.mae == pytest.approx(mean_absolute_error(labels, predictions))
    assert report.scores.rmse == pytest.approx(root_mean_squared_error(labels, predictions))
    assert report.predictions.tolist() == predictions.tolist()
    assert report.labels.tolist() == labels.tolist()
    json.dumps(report.to_dict(), allow_nan=False)


def test_single_outputs_become_columns():
    report = prediction_report(torch.tensor([1.0, 2.0]), torch.tensor([[1.0], [3.0]]))
    assert report.predictions.tolist() == [[1.0], [2.0]]
    assert report.labels.tolist() == [[1.0], [3.0]]


def test_an_adapter_is_evaluated_in_its_current_state():
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(300).split(50))
    x, y = small_models.table(64, shift=1.0), small_models.table(64, inputs=1, seed=9)
    adapter = regtta.Adapter(model, regtta.SSA(k=4, lr=0.1), source)
    adapter.adapt(x)
    adapted = predict_and_score(adapter, zip(x.split(20), y.split(20), strict=True))
    assert torch.allclose(torch.from_numpy(adapted.predictions).float(), adapter.predict(x))
    plain = predict_and_score(model.train(), [[x, y]])
    assert torch.allclose(torch.from_numpy(plain.predictions).float(), model.eval()(x))
    assert plain.scores.r2 != adapted.scores.r2


def test_the_model_is_not_modified():
    model = small_models.mlp().train()
    before = small_models.model_snapshot(model)
    predict_and_score(model, [(small_models.table(8), small_models.table(8, inputs=1))])
    small_models.assert_unchanged(before, model)


@pytest.mark.parametrize("batch", [torch.zeros(4, 5), (torch.zeros(4, 5),), {"x": torch.zeros(4, 5)}])
def test_batches_without_labels_are_refused(batch):
    with pytest.raises(BatchError, match=r"\(x, y\)"):
        predict_and_score(small_models.mlp(), [batch])


def test_an_empty_loader_is_refused():
    with pytest.raises(BatchError, match="no samples"):
        predict_and_score(small_models.mlp(), [])
