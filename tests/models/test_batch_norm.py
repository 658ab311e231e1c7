import copy

import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.models.batch_norm import MAX_MEMORY, BatchNormSwitch, batch_norm_layers, debiased_momentum


def running_after(mode, batches, momentum):
    layer = nn.BatchNorm1d(2, momentum=momentum)
    layer.running_mean.fill_(100.0)
    layer.eval()
    switch = BatchNormSwitch([layer], mode)
    for batch in batches:
        switch.begin_adaptation(len(batch))
        layer(batch)
        switch.end_adaptation()
        assert not layer.training
        assert layer.momentum == momentum
    return layer.running_mean, switch.updates


def test_batch_mode_is_the_exponential_average_that_includes_the_source():
    batches = torch.randn(5, 8, 2).unbind()
    got, updates = running_after("batch", batches, 0.1)
    expected = torch.full((2,), 100.0)
    for batch in batches:
        expected = 0.9 * expected + 0.1 * batch.mean(0)
    torch.testing.assert_close(got, expected)
    assert updates == 5


def test_debiased_mode_is_the_exponential_average_without_the_source():
    batches = torch.randn(5, 8, 2).unbind()
    got, _ = running_after("debiased", batches, 0.1)
    weights = torch.tensor([0.1 * 0.9 ** (4 - i) for i in range(5)])
    expected = sum(w * b.mean(0) for w, b in zip(weights, batches, strict=True)) / weights.sum()
    torch.testing.assert_close(got, expected)


def test_debiased_mode_without_momentum_is_the_mean():
    batches = torch.randn(5, 8, 2).unbind()
    got, _ = running_after("debiased", batches, None)
    torch.testing.assert_close(got, torch.stack(batches).mean((0, 1)))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_cumulative_mode_weights_all_samples_alike(momentum):
    batches = torch.randn(30, 2).split([2, 17, 11])
    got, updates = running_after("cumulative", batches, momentum)
    torch.testing.assert_close(got, torch.cat(batches).mean(0))
    assert updates == 3


def test_source_mode_changes_nothing():
    got, updates = running_after("source", torch.randn(3, 8, 2).unbind(), 0.1)
    assert (got == 100).all()
    assert updates == 0


def test_debiased_momentum_converges_to_the_momentum_of_the_layer():
    assert debiased_momentum(0.3, 1) == pytest.approx(1.0)
    assert debiased_momentum(0.3, 200) == pytest.approx(0.3)
    assert debiased_momentum(None, 4) == 0.25
    assert debiased_momentum(1.0, 3) == 1.0


def test_batch_norm_layers_in_order():
    model = small_models.cnn()
    assert batch_norm_layers(model) == [model[1], model[4]]
    assert batch_norm_layers(small_models.vit()) == []


# --- blended ---------------------------------------------------------------------------------------

PRIOR = 8


def layer_of(kind, width=3, **options):
    layer = {"1d": nn.BatchNorm1d, "2d": nn.BatchNorm2d}[kind](width, **options)
    generator = torch.Generator().manual_seed(0)
    if layer.running_mean is not None:
        layer.running_mean.copy_(torch.randn(width, generator=generator))
        layer.running_var.copy_(torch.rand(width, generator=generator) + 0.5)
    return layer.eval()


def samples(kind, rows, width=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, width) if kind == "1d" else (rows, width, 4, 5)
    return torch.randn(shape, generator=generator) * 3 + 2


def blend(layer, batches, prior=PRIOR):
    """Run the batches through the layer and return the switch and the output of each."""
    switch = BatchNormSwitch([layer], "blended", prior)
    outputs = []
    for batch in batches:
        switch.begin_adaptation(len(batch))
        outputs.append(layer(batch))
        switch.end_adaptation()
    return switch, outputs


def pooled(source, batches, prior=PRIOR):
    """Compute (p·source + n·target) / (p + n) of all samples so far in float64."""
    values = small_models.numpy64(torch.cat(list(batches)))
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    n = len(values)
    target = values.mean(axes), values.var(axes)
    return [(prior * small_models.numpy64(s) + n * t) / (prior + n) for s, t in zip(source, target, strict=True)]


@pytest.mark.parametrize("kind", ["1d", "2d"])
@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_blended_statistics_are_the_closed_form_of_all_samples_so_far(kind, size, momentum):
    layer = layer_of(kind, momentum=momentum)
    source = layer.running_mean.clone(), layer.running_var.clone()
    batches = samples(kind, 128).split(size)
    switch = BatchNormSwitch([layer], "blended", PRIOR)
    for index, batch in enumerate(batches):
        switch.begin_adaptation(len(batch))
        out = layer(batch)
        switch.end_adaptation()
        mean, variance = pooled(source, batches[: index + 1])
        np.testing.assert_allclose(small_models.numpy64(layer.running_mean), mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(small_models.numpy64(layer.running_var), variance, rtol=1e-4)
        shape = (-1, 1, 1) if kind == "2d" else (-1,)
        expected = (small_models.numpy64(batch) - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + layer.eps)
        np.testing.assert_allclose(small_models.numpy64(out), expected, rtol=1e-3, atol=1e-4)
        assert layer.momentum == momentum
        assert not layer.training
    assert switch.samples == 128
    assert torch.equal(layer(batch), out)  # predictions in eval mode use the same statistics


def test_the_blend_beyond_the_maximum_memory_has_the_documented_weights():
    """Past samples weigh at most MAX_MEMORY·p, and the source p / (p + MAX_MEMORY·p + B)."""
    layer, prior = layer_of("1d"), 2
    source = small_models.numpy64(layer.running_mean), small_models.numpy64(layer.running_var)
    batches = samples("1d", 400).split(4)
    mean, variance, known = 0.0, 0.0, 0
    for batch in batches:
        values, known = small_models.numpy64(batch), min(known, MAX_MEMORY * prior)
        share = len(values) / (known + len(values))
        gap = values.mean(0) - mean
        variance = (1 - share) * variance + share * values.var(0) + share * (1 - share) * gap**2
        mean, known = mean + share * gap, known + len(values)
    switch, _ = blend(layer, batches, prior)
    assert switch.samples == known
    weight = known / (prior + known)
    np.testing.assert_allclose(
        small_models.numpy64(layer.running_mean), source[0] + weight * (mean - source[0]), rtol=1e-4
    )
    np.testing.assert_allclose(
        small_models.numpy64(layer.running_var), source[1] + weight * (variance - source[1]), rtol=1e-4
    )


def test_the_blend_beyond_the_maximum_memory_tracks_a_changing_target():
    layer, prior = layer_of("1d"), 2
    switch, _ = blend(layer, [*samples("1d", 400).split(4), *(samples("1d", 800, seed=2) + 50).split(4)], prior)
    assert switch.samples == MAX_MEMORY * prior + 4
    assert ((layer.running_mean > 45) & (layer.running_mean < 56)).all()


@pytest.mark.parametrize("kind", ["1d", "2d"])
def test_the_blend_does_not_depend_on_the_batch_size(kind):
    found = []
    for size in (1, 2, 7, 31, 96):
        layer = layer_of(kind)
        blend(layer, samples(kind, 96).split(size))
        found.append((layer.running_mean.clone(), layer.running_var.clone()))
    for mean, variance in found[1:]:
        torch.testing.assert_close(mean, found[0][0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(variance, found[0][1], rtol=1e-4, atol=1e-5)


def test_a_second_pass_of_the_same_step_is_not_counted():
    layer, x = layer_of("1d"), samples("1d", 6)
    switch = BatchNormSwitch([layer], "blended", PRIOR)
    switch.begin_adaptation(6)
    layer(x)
    once = layer.running_mean.clone()
    layer(x + 100)  # a view of the same samples
    switch.end_adaptation()
    assert torch.equal(layer.running_mean, once)
    assert switch.samples == 6
    layer(x - 100)
    assert torch.equal(layer.running_mean, once)


def test_layers_without_running_statistics_are_left_alone():
    tracked, bare = layer_of("1d"), layer_of("1d", track_running_stats=False)
    switch = BatchNormSwitch([bare, tracked], "blended", PRIOR)
    x = samples("1d", 16)
    expected = bare(x)
    switch.begin_adaptation(16)
    assert torch.equal(bare(x), expected)
    tracked(x)
    switch.end_adaptation()
    assert bare.running_mean is None
    assert switch.needs_batches is False
    assert BatchNormSwitch([tracked], "batch").needs_batches
    assert not BatchNormSwitch([], "batch").needs_batches


def test_gradients_pass_through_a_blend_as_through_fixed_statistics():
    layer = layer_of("1d").double()
    x = samples("1d", 5).double().requires_grad_()
    switch = BatchNormSwitch([layer], "blended", PRIOR)
    switch.begin_adaptation(5)
    layer(x).sum().backward()
    switch.end_adaptation()
    expected = (layer.weight / (layer.running_var + layer.eps).sqrt()).expand(5, 3)
    torch.testing.assert_close(x.grad, expected.detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_layers_blend_large_batches(dtype):
    layer = layer_of("1d").to(dtype)
    source = layer.running_mean.clone(), layer.running_var.clone()
    batches = samples("1d", 64).to(dtype).split(32)
    blend(layer, batches)
    mean, variance = pooled(source, batches)
    assert layer.running_mean.dtype == dtype
    tolerance = 2 * torch.finfo(dtype).eps
    np.testing.assert_allclose(small_models.numpy64(layer.running_mean), mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(small_models.numpy64(layer.running_var), variance, rtol=tolerance)


def test_half_precision_layers_blend_single_samples():
    """The target is stored in the bfloat16 buffer only: the error is below 0.02 after 128 samples."""
    layer = layer_of("1d").bfloat16()
    source = layer.running_mean.clone(), layer.running_var.clone()
    batches = samples("1d", 128).bfloat16().split(1)
    blend(layer, batches, 32)
    mean, _ = pooled(source, batches, 32)
    np.testing.assert_allclose(small_models.numpy64(layer.running_mean), mean, rtol=0.02, atol=0.02)


def test_double_precision_layers_blend_in_double_precision():
    layer = layer_of("1d").double()
    source = layer.running_mean.clone(), layer.running_var.clone()
    batches = [samples("1d", 32).double() * 1.0001]
    blend(layer, batches)
    np.testing.assert_allclose(small_models.numpy64(layer.running_mean), pooled(source, batches)[0], rtol=1e-12)


def test_a_model_adapts_to_single_samples_by_blending():
    model = small_models.mlp()
    adapter = regtta.Adapter(model, regtta.BNAdapt(batch_norm="blended", prior=PRIOR))
    x = small_models.table(40, shift=1.0)
    for sample in x.split(1):
        step = adapter.adapt(sample)
        assert step.diagnostics.verdict.learned
    assert torch.equal(step.predictions, adapter.predict(sample))
    with torch.no_grad():
        mean, variance = pooled((model[1].running_mean, model[1].running_var), [model[0](x)])
    exported = adapter.export()
    np.testing.assert_allclose(small_models.numpy64(exported[1].running_mean), mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(small_models.numpy64(exported[1].running_var), variance, rtol=1e-4)
    assert torch.equal(exported[1].num_batches_tracked, model[1].num_batches_tracked)
    adapter.reset()
    assert torch.equal(adapter.export()[1].running_mean, model[1].running_mean)


def test_the_second_pass_of_ttt_is_not_counted():
    model = small_models.cnn()
    torch.manual_seed(0)
    method = regtta.TTT(branch=nn.Linear(10, 4), batch_norm="blended", prior=PRIOR, lr=1e-12)
    adapter = regtta.Adapter(model, method)
    x = small_models.images(24, shift=0.5)
    for batch in x.split(8):
        adapter.adapt(batch)
    with torch.no_grad():
        mean, variance = pooled((model[1].running_mean, model[1].running_var), [model[0](x)])
    exported = adapter.export()
    np.testing.assert_allclose(small_models.numpy64(exported[1].running_mean), mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(small_models.numpy64(exported[1].running_var), variance, rtol=1e-4)
    assert adapter.state_dict()["learner"]["batch_norm"] == {"updates": 3, "samples": 24}


KINDS = {"1d": (nn.BatchNorm1d, (6, 3)), "2d": (nn.BatchNorm2d, (6, 3, 4, 5)), "3d": (nn.BatchNorm3d, (2, 3, 2, 2, 2))}


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_batch_mode_equals_the_training_mode_of_torch_bit_for_bit(kind, affine):
    make, shape = KINDS[kind]
    torch.manual_seed(0)
    plain = make(3, affine=affine)
    ours = copy.deepcopy(plain).eval()
    switch = BatchNormSwitch([ours], "batch")
    for _ in range(3):
        inputs = torch.randn(shape)
        switch.begin_adaptation(len(inputs))
        found = ours(inputs)
        switch.end_adaptation()
        assert torch.equal(found, plain(inputs))
    for name, value in plain.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
    assert ours.state_dict()["num_batches_tracked"] == 3
    assert "forward" not in vars(ours)


class Loud(nn.BatchNorm1d):
    def forward(self, inputs):
        return super().forward(inputs) + 1


@pytest.mark.parametrize(
    "layer", [Loud(2), nn.BatchNorm1d(2, momentum=None), nn.BatchNorm1d(2, track_running_stats=False)]
)
def test_nonstandard_layers_run_their_own_forward(layer):
    plain, ours = copy.deepcopy(layer).train(), copy.deepcopy(layer).eval()
    switch = BatchNormSwitch([ours], "batch")
    for _ in range(2):
        inputs = torch.randn(5, 2)
        switch.begin_adaptation(5)
        assert torch.equal(ours(inputs), plain(inputs))
        switch.end_adaptation()
    for name, value in plain.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name


class Odd(nn.BatchNorm1d):
    """Layer that updates its running mean itself and has an additional buffer."""

    def __init__(self, width):
        super().__init__(width)
        self.register_buffer("largest", torch.zeros(width))

    def forward(self, inputs):
        if self.training:
            self.running_mean.lerp_(inputs.detach().mean(0), 0.5)
            self.largest.copy_(torch.maximum(self.largest, inputs.detach().amax(0)))
        return (inputs - inputs.mean(0)) / inputs.std(0)


EVERY_LAYER = {
    "1d": nn.BatchNorm1d(2),
    "not affine": nn.BatchNorm1d(2, affine=False),
    "cumulative": nn.BatchNorm1d(2, momentum=None),
    "untracked": nn.BatchNorm1d(2, track_running_stats=False),
    "of another class": Loud(2),
    "with its own statistics": Odd(2),
}


@pytest.mark.parametrize("mode", ["batch", "debiased"])
@pytest.mark.parametrize("kind", EVERY_LAYER)
def test_an_extra_pass_normalises_by_its_batch_and_moves_no_statistics(kind, mode):
    plain, ours = copy.deepcopy(EVERY_LAYER[kind]).train(), copy.deepcopy(EVERY_LAYER[kind]).eval()
    switch = BatchNormSwitch([ours], mode)
    x, view = torch.randn(5, 2), torch.randn(7, 2) + 10
    switch.begin_adaptation(5)
    first = ours(x.requires_grad_())
    own = dict(ours.named_buffers())
    kept = {name: value.clone() for name, value in own.items()}
    extra = switch.extra_pass(ours, view)
    assert torch.equal(extra, copy.deepcopy(plain)(view))
    assert dict(ours.named_buffers()).keys() == kept.keys()
    for name, value in ours.named_buffers():
        assert value is own[name]
        assert torch.equal(value, kept[name]), name
    (first.sum() + extra.sum()).backward()  # tensors saved by the first pass are unmodified
    switch.end_adaptation()
    with pytest.raises(ZeroDivisionError):  # statistics are restored after an error as well
        switch.extra_pass(lambda _: 1 / 0, view)
    assert all(value is own[name] for name, value in ours.named_buffers())


def test_an_extra_pass_in_eval_mode_is_a_plain_pass():
    layer, x = layer_of("1d"), samples("1d", 6)
    switch = BatchNormSwitch([layer], "source")
    switch.begin_adaptation(6)
    before = {name: value.clone() for name, value in layer.named_buffers()}
    assert torch.equal(switch.extra_pass(layer, x), layer(x))
    assert all(torch.equal(value, before[name]) for name, value in layer.named_buffers())


def test_invalid_batches_raise_the_errors_of_torch():
    layer = nn.BatchNorm2d(3).eval()
    switch = BatchNormSwitch([layer], "batch")
    switch.begin_adaptation(4)
    with pytest.raises(ValueError, match="expected 4D input"):
        layer(torch.zeros(4, 3))
    switch.end_adaptation()
    switch.begin_adaptation(1)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(torch.zeros(1, 3, 1, 1))
    switch.end_adaptation()
