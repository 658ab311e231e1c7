"""State of BatchNorm's running statistics."""

import pytest
import torch
from torch import nn

from helpers import small_models
from regtta.models import inspect_batch_norm


def test_trained_layers_are_fine_and_nothing_changes():
    model = small_models.mlp()
    before = small_models.model_snapshot(model)
    found = inspect_batch_norm(model)
    assert (found.layers, found.error, found.warning) == (2, "", "")
    small_models.assert_unchanged(before, model)


def test_models_without_batch_norm_have_no_layers():
    assert inspect_batch_norm(small_models.vit()).layers == 0


def test_layers_without_running_statistics_are_not_judged():
    assert inspect_batch_norm(nn.BatchNorm1d(3, track_running_stats=False)).warning == ""


def test_initial_statistics_are_doubtful_and_the_layers_named():
    model = nn.Sequential(*(nn.BatchNorm2d(3) for _ in range(5)))
    warning = inspect_batch_norm(model).warning
    assert "the running statistics of '0', '1', '2' and 2 other layers have their initial values" in warning
    model[0].running_mean += 0.1
    assert "of '1', '2', '3' and 1 other layers" in inspect_batch_norm(model).warning


def test_statistics_that_were_loaded_without_their_counter_are_fine():
    layer = small_models.mlp()[1]
    layer.num_batches_tracked.zero_()
    assert inspect_batch_norm(layer).warning == ""


@pytest.mark.parametrize(
    ("name", "value"), [("running_mean", torch.nan), ("running_var", torch.inf), ("running_var", -1)]
)
def test_invalid_statistics_are_an_error(name, value):
    model = small_models.cnn()
    getattr(model[4], name)[3] = value
    assert "negative variances in '4'. Load weights" in inspect_batch_norm(model).error


def test_half_of_the_channels_without_variance_are_doubtful():
    layer = small_models.mlp()[1]
    layer.running_var[:5] = 0
    assert inspect_batch_norm(layer).warning == ""
    layer.running_var[:6] = 0
    assert (
        "At least half of the channels have a running variance of 0 in the model" in inspect_batch_norm(layer).warning
    )
