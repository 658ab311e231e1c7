import pytest
import torch
from torch import nn

from helpers import small_models
from regtta.models import LayerOutputs, normalisation_layers


def test_outputs_of_the_first_pass_in_the_block():
    net, x = small_models.mlp(), small_models.table(6)
    recorder = LayerOutputs(normalisation_layers(net))
    with recorder as outputs:
        net(x)
        net(x + 1)
    assert list(outputs) == ["1", "4"]
    assert torch.equal(outputs["1"], net[:2](x))
    assert torch.equal(outputs["4"], net[:5](x))
    assert outputs["1"].requires_grad
    with recorder as again:
        net(x + 1)
    assert torch.equal(again["1"], net[:2](x + 1))


def test_the_model_is_left_as_it_was_after_an_error():
    net = small_models.mlp()
    with pytest.raises(ZeroDivisionError), LayerOutputs(normalisation_layers(net)):
        raise ZeroDivisionError
    assert not any(module._forward_hooks for module in net.modules())


def test_normalisation_inside_transformer_layers_is_recorded_without_gradients():
    net = small_models.vit()
    names = list(normalisation_layers(net))
    assert names == ["block.norm1", "block.norm2", "norm"]
    with torch.no_grad(), LayerOutputs(normalisation_layers(net)) as outputs:
        net(small_models.images(2))
    assert sorted(outputs) == sorted(names)


def test_normalisation_layers_of_other_libraries_are_found_by_name():
    class RmsNorm2d(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

    class NormFree(nn.Module):
        """Called after what it does without; no parameters."""

    net = nn.Sequential(RmsNorm2d(), NormFree(), nn.Linear(3, 3), nn.GroupNorm(1, 3), nn.InstanceNorm1d(3))
    assert list(normalisation_layers(net)) == ["0", "3", "4"]
