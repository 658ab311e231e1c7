import pytest
import torch

import regtta
from helpers import small_models
from helpers.method_inputs import FEATURES, batch_of, context_of, head_of
from regtta.errors import BatchError, OptionError
from regtta.models.augmentation import shift_and_jitter
from regtta.models.features import Forward


def doubled(inputs, generator):
    """Return the input and twice the input alternately."""
    doubled.calls += 1
    return inputs * doubled.calls


def test_worked_example():
    # Two views: x and 2x. The variance of (v, 2v) is v²/2; summed over four outputs, averaged over three inputs.
    doubled.calls = 0
    rule = regtta.VarianceMinimization(views=2, augment=doubled).start(context_of(head_of([1.0] * 4)))
    loss = rule.update(batch_of(FEATURES, inputs=FEATURES, forward=lambda x: Forward(x, x)))
    assert loss.item() == pytest.approx((FEATURES.numpy() ** 2).sum() / 2 / 3)


def test_outputs_without_a_column_dimension():
    doubled.calls = 0
    rule = regtta.VarianceMinimization(views=3, augment=doubled).start(context_of(head_of([1.0] * 4)))
    loss = rule.update(batch_of(FEATURES, inputs=FEATURES, forward=lambda x: Forward(x, x.sum(dim=1))))
    sums = FEATURES.sum(1).numpy()
    assert loss.item() == pytest.approx((sums**2).mean())  # the variance of (s, 2s, 3s) is s²


def test_views_differ_between_batches_and_are_reproducible():
    images = small_models.images(6)
    a, b = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    first = shift_and_jitter(images, a)
    assert torch.equal(first, shift_and_jitter(images, b))
    assert not torch.equal(first, shift_and_jitter(images, a))


def test_views_are_shifted_and_jittered_images():
    images = torch.zeros(200, 1, 16, 16)
    images[:, :, 8, 8] = 1.0
    views = shift_and_jitter(images, torch.Generator().manual_seed(0))
    peaks = views.flatten(1).argmax(dim=1)
    shifts = torch.stack([peaks // 16, peaks % 16]) - 8
    assert shifts.min() == -2
    assert shifts.max() == 2
    mean = 1 / 256
    assert views.mean(dim=(1, 2, 3)).min() >= 0.8 * mean * (1 - 1e-4)
    assert views.mean(dim=(1, 2, 3)).max() <= 1.2 * mean * (1 + 1e-4)
    brightness = views.mean(dim=(1, 2, 3)) / mean
    contrast = (views.amax(dim=(1, 2, 3)) - views.amin(dim=(1, 2, 3))) / brightness
    assert 0.8 - 1e-4 <= contrast.min() < 0.83
    assert 1.17 < contrast.max() <= 1.2 + 1e-4
    flat = torch.full((50, 3, 16, 16), 0.5)
    factors = shift_and_jitter(flat, torch.Generator().manual_seed(1)).flatten(1) / 0.5
    torch.testing.assert_close(factors.amin(1), factors.amax(1))  # a flat field stays flat, edges included
    assert 0.8 <= factors.min() < 0.83
    assert 1.17 < factors.max() <= 1.2


def test_views_do_not_enter_the_running_statistics():
    """With a negligible learning rate, variance minimisation equals BN-adapt."""
    model = small_models.cnn()
    adapter = regtta.Adapter(model, regtta.VarianceMinimization(views=3, lr=1e-30))
    bn_adapt = regtta.Adapter(model, regtta.BNAdapt())
    for x in small_models.images(60, shift=0.5).split(20):
        assert adapter.adapt(x).diagnostics.verdict.learned
        bn_adapt.adapt(x)
        torch.testing.assert_close(adapter.predict(x), bn_adapt.predict(x))


def test_inputs_that_are_no_images_require_an_augmentation():
    adapter = regtta.Adapter(small_models.mlp(), regtta.VarianceMinimization(views=2))
    with pytest.raises(BatchError, match=r"no default augmentation for inputs of shape \(8, 5\).*augment=<callable"):
        adapter.adapt(small_models.table(8))

    def noisy(inputs, generator):
        return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)

    given = regtta.Adapter(small_models.mlp(), regtta.VarianceMinimization(views=2, augment=noisy))
    assert given.adapt(small_models.table(8)).diagnostics.verdict.learned
    for wrong in (torch.zeros(2, 3, 16, 16, dtype=torch.uint8), torch.zeros(2, 3, 4, 16)):
        with pytest.raises(BatchError, match="no default augmentation"):
            shift_and_jitter(wrong, torch.Generator())


def test_invalid_options():
    for options, message in [
        ({"views": 1}, "at least 2"),
        ({"views": 0}, "whole number"),
        ({"augment": "x"}, "augment"),
    ]:
        with pytest.raises(OptionError, match=message):
            regtta.VarianceMinimization(**options)
