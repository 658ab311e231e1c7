import copy

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import ModelError, OptionError


def test_predictions_are_those_of_train_mode_without_dropout():
    model, stream = small_models.cnn(), small_models.images(64, shift=0.5).split(16)
    adapter = regtta.Adapter(model, regtta.BNAdapt())
    plain = copy.deepcopy(model).train()
    plain[8].eval()
    with torch.no_grad():
        for x in stream:
            torch.testing.assert_close(adapter.adapt(x).predictions, plain(x), rtol=0, atol=0)
    exported = adapter.export()
    for name, value in plain.state_dict().items():
        assert torch.equal(exported.state_dict()[name], value), name


def test_debiased_statistics_are_those_of_the_target_after_one_batch():
    model, x = small_models.mlp(), small_models.table(50, shift=3.0)
    adapter = regtta.Adapter(model, regtta.BNAdapt(batch_norm="debiased"))
    adapter.adapt(x)
    with torch.no_grad():
        hidden = model[0](x)
    exported = adapter.export()
    torch.testing.assert_close(exported[1].running_mean, hidden.mean(0))
    torch.testing.assert_close(exported[1].running_var, hidden.var(0))
    assert exported[1].momentum == model[1].momentum


def test_batch_norm_with_running_statistics_is_required():
    with pytest.raises(ModelError, match="TinyViT has no BatchNorm layer"):
        regtta.Adapter(small_models.vit(), regtta.BNAdapt())
    bare = nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 1))
    with pytest.raises(ModelError, match="no BatchNorm layer with running statistics"):
        regtta.Adapter(bare, regtta.BNAdapt())
    with pytest.raises(OptionError, match="batch_norm to be one of"):
        regtta.BNAdapt(batch_norm="source")


def test_no_linear_head_is_required():
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 1, 14), nn.Flatten())
    step = regtta.Adapter(model, regtta.BNAdapt()).adapt(small_models.images(8))
    assert step.predictions.shape == (8, 1)
    assert step.diagnostics.verdict.learned
