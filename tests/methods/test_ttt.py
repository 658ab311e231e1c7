import math

import pytest
import torch
from torch import nn
from torchvision.transforms.functional import rotate

import regtta
from helpers import small_models
from helpers.method_inputs import FEATURES, batch_of, context_of, head_of
from regtta.errors import BatchError, ModelError, StatisticsError
from regtta.methods.ttt import rotate_images
from regtta.models.features import Forward


def branch_of(width=10, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(width, 4)


def test_rotations_against_torchvision():
    images = torch.rand(4, 3, 6, 6)
    turned = rotate_images(images, torch.arange(4))
    for turn in range(4):
        torch.testing.assert_close(turned[turn], rotate(images[turn], 90 * turn))
    assert torch.equal(turned[0], images[0])


def test_worked_example():
    # The branch's logits are the features themselves, so the loss is their cross-entropy with the turns drawn.
    branch = nn.Linear(4, 4).double()
    with torch.no_grad():
        branch.weight.copy_(torch.eye(4))
        branch.bias.zero_()
    rule = regtta.TTT(branch=branch, seed=5).start(context_of(head_of([1.0] * 4)))
    turns = torch.randint(4, (3,), generator=torch.Generator().manual_seed(5)).tolist()
    expected = 0.0
    for row, turn in zip(FEATURES.tolist(), turns, strict=True):
        expected += (math.log(sum(math.exp(v) for v in row)) - row[turn]) / 3
    batch = batch_of(inputs=torch.zeros(3, 1, 2, 2).double(), forward=lambda x: Forward(FEATURES, FEATURES))
    assert rule.update(batch).item() == pytest.approx(expected)


def test_the_rotation_loss_decreases_with_a_fixed_branch():
    model, branch = small_models.cnn(), branch_of()
    before = branch.weight.detach().clone()
    adapter = regtta.Adapter(model, regtta.TTT(branch=branch, lr=0.1))
    losses = [adapter.adapt(x).diagnostics.loss for x in small_models.images(32 * 40).split(32)]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert torch.equal(branch.weight, before)
    assert torch.equal(adapter.export()[9].weight, model[9].weight)


def test_rotated_images_do_not_enter_the_running_statistics():
    """With a negligible learning rate, TTT equals BN-adapt."""
    model = small_models.cnn()
    ttt = regtta.Adapter(model, regtta.TTT(branch=branch_of(), lr=1e-30), head="9")
    bn_adapt = regtta.Adapter(model, regtta.BNAdapt())
    for x in small_models.images(60, shift=0.5).split(20):
        assert ttt.adapt(x).diagnostics.verdict.learned
        bn_adapt.adapt(x)
        torch.testing.assert_close(ttt.predict(x), bn_adapt.predict(x))


def test_the_branch_is_stored_with_the_statistics(tmp_path):
    model, branch = small_models.cnn(), branch_of()
    source = regtta.collect(model, iter(small_models.images(60).split(20)), methods=[regtta.TTT(branch=branch)])
    source.save(tmp_path / "s.safetensors")
    source = regtta.SourceStatistics.load(tmp_path / "s.safetensors")
    given = regtta.Adapter(model, regtta.TTT(branch=branch), source)
    found = regtta.Adapter(model, regtta.TTT(), source)
    for x in small_models.images(40, shift=0.3).split(10):
        assert torch.equal(given.adapt(x).predictions, found.adapt(x).predictions)
    assert torch.equal(given.predict(x), found.predict(x))


def test_a_branch_without_bias():
    branch = nn.Linear(10, 4, bias=False)
    source = regtta.collect(small_models.cnn(), small_models.images(60).split(20), methods=[regtta.TTT(branch=branch)])
    assert (source.extras["ttt/bias"] == 0).all()


def test_missing_or_incompatible_branches_raise():
    model = small_models.cnn()
    with pytest.raises(ModelError, match="trained together with the model, never collected"):
        regtta.collect(model, small_models.images(40).split(20), methods=[regtta.TTT()])
    with pytest.raises(StatisticsError, match=r"methods=\[regtta.create_method\('ttt'\)\]"):
        regtta.Adapter(model, regtta.TTT(), regtta.collect(model, small_models.images(40).split(20)))
    with pytest.raises(ModelError, match=r"from 10 features to 4 rotations, found weights of shape \(4, 7\)"):
        regtta.Adapter(model, regtta.TTT(branch=branch_of(7)), head="9")
    with pytest.raises(BatchError, match=r"expected inputs of shape \(B, C, S, S\), found \(2, 3, 16, 12\)"):
        rotate_images(torch.zeros(2, 3, 16, 12), torch.zeros(2))
