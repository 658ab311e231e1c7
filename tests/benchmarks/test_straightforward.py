"""Tests that the reference computes the same as regtta, as a fair comparison requires."""

import pytest
import torch
from torch import nn

import regtta
from benchmarks.speed.straightforward import StraightforwardSSA, gaussian_kl
from benchmarks.speed.subjects import TINY_IMAGES, TINY_MLP, make_testbed

CPU = torch.device("cpu")


@pytest.mark.parametrize("subject", [TINY_MLP, TINY_IMAGES], ids=lambda subject: subject.architecture)
def test_losses_and_predictions_match_ssa_at_every_step(subject):
    testbed = make_testbed(subject, CPU)
    straightforward = StraightforwardSSA(testbed.model, testbed.source, subject.head, k=20)
    adapter = regtta.Adapter(testbed.model, regtta.SSA(k=20), testbed.source)
    for batch in testbed.shifted:
        step = adapter.adapt(batch)
        torch.testing.assert_close(straightforward.adapt(batch), step.predictions)
        assert straightforward.last_loss.item() == pytest.approx(step.diagnostics.loss, rel=1e-5)
        assert step.diagnostics.verdict.learned


def test_loss_with_several_outputs_matches_ssa():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3)).eval()
    source = regtta.collect(model, torch.randn(200, 4).split(50))
    batch = torch.randn(30, 4) + 1
    straightforward = StraightforwardSSA(model, source, "3")
    straightforward.adapt(batch)
    step = regtta.Adapter(model, regtta.SSA(), source).adapt(batch)
    assert straightforward.last_loss.item() == pytest.approx(step.diagnostics.loss, rel=1e-5)


def test_parameters_have_gradients_and_only_affine_ones_change():
    testbed = make_testbed(TINY_MLP, CPU)
    straightforward = StraightforwardSSA(testbed.model, testbed.source, TINY_MLP.head)
    straightforward.adapt(testbed.shifted[0])
    before = dict(testbed.model.named_parameters())
    affine = {
        f"{name}.{part}"
        for name, module in testbed.model.named_modules()
        if isinstance(module, nn.BatchNorm1d)
        for part in ("weight", "bias")
    }
    for name, parameter in straightforward.model.named_parameters():
        at_head = name.startswith(f"{TINY_MLP.head}.")  # the loss depends on the inputs of the head only
        assert (parameter.grad is None) == at_head
        assert torch.equal(parameter, before[name]) == (name not in affine)


def test_nonlinear_head_raises_an_error():
    testbed = make_testbed(TINY_MLP, CPU)
    with pytest.raises(TypeError, match="found BatchNorm1d"):
        StraightforwardSSA(testbed.model, testbed.source, "1")


def test_gaussian_kl_matches_torch():
    mean, mean0 = torch.randn(2, 5)
    variance, variance0 = torch.rand(2, 5) + 0.1
    ours = gaussian_kl(mean, variance, mean0, variance0)
    theirs = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, variance.sqrt()), torch.distributions.Normal(mean0, variance0.sqrt())
    )
    torch.testing.assert_close(ours, theirs)
