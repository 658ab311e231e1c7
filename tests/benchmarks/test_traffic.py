import torch
from torch import nn

from benchmarks.speed.traffic import CONVOLUTION_TRIPS, JUNCTION_TRIPS, traffic


class Bottleneck(nn.Module):
    """Residual block with the name of ResNet's blocks."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.relu(self.convolution(x) + x)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.MaxPool2d(2), Bottleneck(), nn.Flatten(), nn.Linear(64, 1)
    )


def test_counts_match_a_manual_calculation():
    found = traffic(network(), torch.zeros(2, 3, 8, 8))
    first, second = 2 * 4 * 8 * 8, 2 * 4 * 4 * 4
    assert found.convolved == first + second
    assert found.joined == 2 * second  # outputs of the pooling and of the block
    assert found.inputs == 2 * 3 * 8 * 8
    assert found.weights == 4 * 3 * 9 + 4 * 4 * 9 + 64 + 1
    assert found.multiplications == first * 27 + second * 36


def test_bytes_and_operations_are_derived_from_the_counts():
    found = traffic(network(), torch.zeros(2, 3, 8, 8))
    numbers = CONVOLUTION_TRIPS * found.convolved + JUNCTION_TRIPS * found.joined + 2 * found.weights
    assert found.bytes_moved() == 2 * numbers + 4 * found.inputs
    assert found.bytes_moved(4) == 4 * numbers + 4 * found.inputs
    assert found.operations == 4 * found.multiplications


def test_resnet50_has_4_1_billion_multiplications_per_image():
    from regtta_bench.training.models import resnet50

    found = traffic(resnet50().eval(), torch.zeros(1, 3, 224, 224))
    assert round(found.multiplications / 1e9, 1) == 4.1


def test_hooks_are_removed_from_the_model():
    model = network()
    traffic(model, torch.zeros(1, 3, 8, 8))
    assert not any(module._forward_hooks for module in model.modules())
