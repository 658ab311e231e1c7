"""The paper's models, each with a linear head of as many outputs as asked for."""

from torch import nn

WIDTH = 100
HIDDEN_LAYERS = 5


def tabular_mlp(inputs: int, outputs: int = 1) -> nn.Sequential:
    """Five blocks of a bias-free linear layer of 100, BatchNorm and ReLU, then the head: California's model.

    Example:
        >>> sum(parameter.numel() for parameter in tabular_mlp(8).parameters())
        41901
    """
    layers: list[nn.Module] = []
    for index in range(HIDDEN_LAYERS):
        width = inputs if index == 0 else WIDTH
        layers += [nn.Linear(width, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, outputs))


def resnet26(outputs: int = 1) -> nn.Module:
    """The ResNet-26 of timm with 2048 features, untrained: SVHN's model."""
    import timm

    model: nn.Module = timm.create_model("resnet26", num_classes=outputs)
    return model
