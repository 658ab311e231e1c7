"""Warnings and errors about source features: constant, barely varying, of too few samples."""

import logging

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import ModelError, StatisticsError
from regtta.statistics import check_first_batch, describe_few_samples, describe_small_variation


@pytest.mark.parametrize(
    ("mean", "deviation", "warned"),
    [
        (0.0, 1.0, False),
        (0.0, 1.1e-6, False),
        (0.0, 0.9e-6, True),
        (1.0, 1.1e-3, False),
        (1.0, 0.9e-3, True),
        (1e6, 1.1e3, False),
        (1e6, 1.0, True),
        (1e-8, 1e-8, True),
    ],
)
def test_features_barely_vary_below_either_threshold(mean, deviation, warned):
    text = describe_small_variation(torch.full((7,), mean), torch.full((7,), deviation**2))
    assert bool(text) == warned
    if warned:
        assert f"their standard deviation is {deviation:.2g}" in text
        assert "trained weights" in text


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_untrained_torchvision_models(name):
    """Residual connections keep the size of activations; without trained weights, those of MobileNet vanish."""
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    model = getattr(models, name)(weights=None, num_classes=1).eval()
    x = torch.rand(16, 3, 64, 64)
    with torch.no_grad():
        head = "fc" if name == "resnet18" else "classifier.1"
        features = regtta.models.FeatureModel(model, head)(x).features
    assert bool(check_first_batch(x, features)) == (name == "mobilenet_v2")


def test_identical_features_of_different_samples_are_an_error():
    x = small_models.table(16)
    with pytest.raises(StatisticsError, match="all 16 samples of the first batch have the same features"):
        check_first_batch(x, torch.ones(16, 4))
    assert check_first_batch(x[:15], torch.ones(15, 4)) == ""
    assert check_first_batch(torch.ones(16, 5), torch.ones(16, 4)) == ""


def test_collect_raises_at_the_first_batch_and_reads_no_further():
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    nn.init.constant_(model[0].bias, -1e3)
    read = []

    def loader():
        for batch in small_models.table(100).split(20):
            read.append(len(batch))
            yield batch

    with pytest.raises(StatisticsError, match="do not vary"):
        regtta.collect(model, loader())
    assert read == [20]


def test_collect_warns_once_of_features_that_barely_vary(caplog):
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1))
    nn.init.constant_(model[0].weight, 1e-9)
    nn.init.normal_(model[0].bias)
    with torch.no_grad():
        model[0].weight.mul_(torch.rand(4, 5))
    source = regtta.collect(model.double(), small_models.table(400).double().split(50))
    assert ["barely vary" in message for message in caplog.messages] == [True]
    caplog.clear()
    adapter = regtta.Adapter(model, "ssa", source, trainable="extractor")
    assert len(caplog.messages) == 1
    assert f"warning      {caplog.messages[0]}" in adapter.summary().splitlines()


def test_batches_too_small_to_judge_are_judged_at_the_end(caplog):
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1)).double()
    with torch.no_grad():
        model[0].weight.mul_(1e-9)
    regtta.collect(model, small_models.table(100).double().split(5))
    assert ["barely vary" in message for message in caplog.messages] == [True]


# --- the number of samples ------------------------------------------------------------------------


def collect(rows, width=12):
    model = small_models.mlp(width=width)
    return model, regtta.collect(model, small_models.table(rows).split(50))


def test_collect_warns_if_the_number_of_samples_limits_the_rank(caplog):
    _, source = collect(30, width=60)
    assert source.rank == 29
    (message,) = caplog.messages
    assert message == describe_few_samples(source)
    assert "The rank 29 of the source features is limited by the number of source samples, 30." in message
    caplog.clear()
    _, source = collect(400, width=60)
    assert caplog.messages == []
    assert describe_few_samples(source) == ""


@pytest.mark.parametrize(("k", "warned"), [(10, False), (11, True), ("auto", True)])
def test_two_samples_per_aligned_direction_are_enough(caplog, k, warned):
    model, source = collect(20)
    caplog.clear()
    adapter = regtta.Adapter(model, "ssa", source, k=k)
    assert len(caplog.messages) == warned
    assert adapter.summary().count("source samples are used to align") == warned


def test_other_methods_do_not_align_principal_directions(caplog):
    model, source = collect(20)
    caplog.clear()
    regtta.Adapter(model, "feature_alignment", source)
    assert caplog.messages == []


# --- BatchNorm and silence ------------------------------------------------------------------------


def test_collect_warns_of_batch_norm_without_data(caplog):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    regtta.collect(model, small_models.table(100).split(50))
    assert ["BatchNorm has never seen data" in message for message in caplog.messages] == [True]


def test_collect_rejects_invalid_running_statistics_before_it_reads():
    model = small_models.mlp()
    model[4].running_mean[0] = torch.inf
    with pytest.raises(ModelError, match=r"not finite or have negative variances in '4'\. Load weights"):
        regtta.collect(model, iter(()))


def test_a_default_run_logs_nothing(caplog):
    with caplog.at_level(logging.WARNING, "regtta"):
        model = small_models.mlp()
        source = regtta.collect(model, small_models.table(400).split(50))
        adapter = regtta.Adapter(model, "ssa", source)
        steps = list(adapter.run(small_models.table(30 * 32, shift=1.0, scale=1.5, seed=3).split(32)))
    assert all(step.adapted for step in steps)
    assert len(steps) == 30
    assert caplog.messages == []
    assert "warning" not in adapter.summary()
