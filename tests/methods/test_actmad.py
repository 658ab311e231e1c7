import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.process_groups import run_in_processes
from regtta.errors import BatchError, ModelError, OptionError, StatisticsError
from regtta.methods.actmad import by_channel, by_sample


def activations(model, x):
    """Return the outputs of the BatchNorm layers in eval mode, by name, as numpy arrays."""
    found = {}
    hooks = [
        layer.register_forward_hook(lambda _m, _i, out, name=name: found.__setitem__(name, out.numpy()))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm | nn.LayerNorm)
    ]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return found


def loss_by_numpy(model, data, x, dims):
    total = 0
    whole, batch = activations(model, data), activations(model, x)
    for name in whole:
        axes = dims(whole[name])
        means = [values.mean(axes) for values in (batch[name], whole[name])]
        variances = [values.var(axes, ddof=1) for values in (batch[name], whole[name])]
        total += np.abs(means[0] - means[1]).mean() + np.abs(variances[0] - variances[1]).mean()
    return total


def test_worked_example():
    # BatchNorm as the identity (ε = 0): on the source 1 and 3, mean 2 and variance 2; the batch 2, 4, 9 has mean 5 and
    # variance 13: |5 − 2| + |13 − 2| = 14.
    model = nn.Sequential(nn.BatchNorm1d(1, eps=0.0), nn.Linear(1, 1)).double().eval()
    method = regtta.ActMAD()
    source = regtta.collect(model, [torch.tensor([[1.0], [3.0]]).double()], methods=[method])
    step = regtta.Adapter(model, method, source).adapt(torch.tensor([[2.0], [4.0], [9.0]]).double())
    assert step.loss == pytest.approx(14)


@pytest.mark.parametrize(("kind", "per_location"), [("mlp", True), ("mlp", False), ("cnn", True), ("cnn", False)])
def test_loss_against_numpy(kind, per_location):
    draw = small_models.table if kind == "mlp" else small_models.images
    model = getattr(small_models, kind)().double()
    data, x = draw(90).double(), draw(20, shift=0.5, scale=1.3, seed=5).double()
    method = regtta.ActMAD(per_location=per_location)
    source = regtta.collect(model, data.split([40, 30, 20]), methods=[method])
    step = regtta.Adapter(model, method, source).adapt(x)
    expected = loss_by_numpy(model, data, x, lambda a: 0 if per_location or a.ndim == 2 else (0, 2, 3))
    assert step.loss == pytest.approx(expected, rel=1e-5)  # source statistics are stored in float32


@pytest.mark.parametrize("per_location", [True, False])
def test_layer_norm_against_numpy(per_location):
    model = small_models.vit().double()
    data, x = small_models.images(60).double(), small_models.images(20, shift=0.5, seed=5).double()
    method = regtta.ActMAD(per_location=per_location)
    source = regtta.collect(model, data.split(20), methods=[method])
    step = regtta.Adapter(model, method, source).adapt(x)
    expected = loss_by_numpy(model, data, x, lambda a: 0 if per_location else (0, 1))
    assert step.loss == pytest.approx(expected, rel=1e-5)


def test_size_of_the_stored_statistics():
    model = small_models.cnn()
    by_location, by_channels = (
        regtta.collect(model, small_models.images(40).split(20), methods=[regtta.ActMAD(per_location=choice)]).extras
        for choice in (True, False)
    )
    assert {name: len(value) for name, value in by_location.items() if "mean" in name} == {
        "actmad/mean/1": 6 * 7 * 7,
        "actmad/mean/4": 10 * 3 * 3,
    }
    assert {name: len(value) for name, value in by_channels.items() if "variance" in name} == {
        "actmad/variance/1": 6,
        "actmad/variance/4": 10,
    }
    assert all(value.dtype == torch.float32 for value in by_location.values())


def test_gradients_agree_with_finite_differences():
    model = small_models.mlp().double()
    method = regtta.ActMAD(optimizer="sgd", lr=1.0)
    source = regtta.collect(model, small_models.table(90).double().split(30), methods=[method])
    x = small_models.table(20, shift=0.5, scale=1.3).double()
    adapter = regtta.Adapter(model, method, source)
    adapter.adapt(x)
    taken = {name: model.get_parameter(name) - value for name, value in adapter.export().named_parameters()}
    for name in ("1.weight", "1.bias", "4.weight", "4.bias"):
        for index in (0, 7):
            losses = []
            for sign in (1, -1):
                moved = small_models.mlp().double()
                moved.load_state_dict(model.state_dict())
                with torch.no_grad():
                    moved.get_parameter(name)[index] += sign * 1e-6
                other = regtta.Adapter(moved, method, source, allow_mismatch=True)
                losses.append(other.adapt(x).loss)
            slope = (losses[0] - losses[1]) / 2e-6
            assert taken[name][index].item() == pytest.approx(slope, rel=1e-4, abs=1e-7), (name, index)


def test_the_model_is_left_without_recorders():
    model = small_models.cnn()
    method = regtta.ActMAD()
    adapter = regtta.Adapter(model, method, regtta.collect(model, small_models.images(40).split(20), methods=[method]))
    adapter.adapt(small_models.images(12, shift=1.0))
    for module in (*adapter.model.modules(), *adapter.export().modules(), *model.modules()):
        assert not module._forward_hooks


def test_a_model_that_is_compiled_for_predictions_is_recorded():
    model, method = small_models.mlp(), regtta.ActMAD(lr=1e-2)
    source = regtta.collect(model, small_models.table(60).split(20), methods=[method])
    stream = small_models.table(60, shift=1.0).split(12)
    plain, compiled = (
        [step.loss for step in regtta.Adapter(model, method, source, execution=execution).run(stream)]
        for execution in (regtta.Execution(), regtta.Execution(compile=True))
    )
    assert compiled == plain


def test_sums_record_too():
    model = small_models.cnn().double()
    actmad = regtta.ActMAD()
    source = regtta.collect(model, small_models.images(60).double().split(20), methods=[actmad])
    x = small_models.images(12, shift=1.0).double()
    options = {"batch_norm": "source", "k": 4}
    summed = regtta.Adapter(model, regtta.create_method("consistency+2*actmad+ssa", **options), source).adapt(x)
    parts = [
        regtta.Adapter(
            model, regtta.create_method(name, batch_norm="source", **({"k": 4} if name == "ssa" else {})), source
        )
        .adapt(x)
        .loss
        for name in ("consistency", "actmad", "ssa")
    ]
    assert summed.loss == pytest.approx(parts[0] + 2 * parts[1] + parts[2])


def test_layers_that_see_several_rows_of_a_sample_are_compared_by_sample():
    assert by_sample("n", torch.arange(12).view(6, 2), 3).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(ModelError, match=r"layer 'n' for a batch of 4, found \(6, 2\).*such as ssa"):
        by_sample("n", torch.zeros(6, 2), 4)


def test_rows_of_channels():
    images = torch.randn(2, 3, 4, 5)
    assert torch.equal(by_channel(nn.GroupNorm(1, 3), images).T, images.transpose(0, 1).flatten(1))
    tokens = torch.randn(2, 3, 4)
    assert torch.equal(by_channel(nn.LayerNorm((3, 4)), tokens), tokens.reshape(2, 12))


def test_inputs_of_varying_size():
    model = small_models.cnn()
    batches = [torch.rand(10, 3, side, side) for side in (16, 20)]
    with pytest.raises(BatchError, match="layer '1', as before, found 486.*per_location=False"):
        regtta.collect(model, batches, methods=[regtta.ActMAD()])
    method = regtta.ActMAD(per_location=False)
    source = regtta.collect(model, batches, methods=[method])
    assert regtta.Adapter(model, method, source).adapt(torch.rand(10, 3, 24, 24) + 1).adapted


def test_missing_and_incompatible_statistics_raise():
    model = small_models.mlp()
    data = small_models.table(60).split(20)
    with pytest.raises(StatisticsError, match=r"methods=\[regtta.create_method\('actmad'\)\]"):
        regtta.Adapter(model, "actmad", regtta.collect(model, data))
    source = regtta.collect(model, data, methods=[regtta.ActMAD()])
    with pytest.raises(StatisticsError, match="per_location=True, not False"):
        regtta.Adapter(model, regtta.ActMAD(per_location=False), source)
    with pytest.raises(OptionError, match="per_location to be True or False"):
        regtta.ActMAD(per_location=1)
    plain = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    with pytest.raises(ModelError, match="no normalisation layer.*such as ssa"):
        regtta.collect(plain, data, methods=[regtta.ActMAD()])


def test_statistics_survive_a_file(tmp_path):
    model = small_models.cnn()
    source = regtta.collect(model, small_models.images(60).split(20), methods=[regtta.ActMAD()])
    source.save(tmp_path / "s.safetensors")
    x = small_models.images(12, shift=1.0)
    losses = [
        regtta.Adapter(model, "actmad", given).adapt(x).loss for given in (source, str(tmp_path / "s.safetensors"))
    ]
    assert losses[0] == losses[1]


def _collect_and_adapt(group, per_location):
    model, rank = small_models.cnn().double(), group.rank()
    method = regtta.ActMAD(per_location=per_location, lr=1e-2)
    data = small_models.images(60).double().split(20) if rank < 2 else []
    mine = [batch[rank::2] for batch in data]
    source = regtta.collect(model, mine, methods=[method], process_group=group)
    adapter = regtta.Adapter(model, method, source, process_group=group)
    stream = small_models.images(60, shift=0.5).double().split(20)
    cuts = [0, 5, 20, 20]  # the last process has no samples
    losses = [adapter.adapt(x[cuts[rank] : cuts[rank + 1]]).loss for x in stream]
    return losses, {name: value for name, value in source.extras.items() if "actmad" in name}


@pytest.mark.parametrize("per_location", [True, False])
def test_several_processes_match_a_single_one(tmp_path, per_location):
    results = run_in_processes(3, _collect_and_adapt, tmp_path, per_location)
    model, method = small_models.cnn().double(), regtta.ActMAD(per_location=per_location, lr=1e-2)
    source = regtta.collect(model, small_models.images(60).double().split(20), methods=[method])
    adapter = regtta.Adapter(model, method, source)
    expected = [step.loss for step in adapter.run(small_models.images(60, shift=0.5).double().split(20))]
    for losses, extras in results:
        for name, value in extras.items():
            torch.testing.assert_close(value, source.extras[name], rtol=1e-5, atol=1e-6)
        assert losses == pytest.approx(expected, rel=1e-5)
