"""The paper's models, each with a linear head of configurable width.

In the paper ResNet-50 and ViT-B/16 start from ImageNet weights, which are read here from a file of the user. Without
one the model starts from random weights and logs a warning.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from torch import Tensor, nn

from regtta.errors import MismatchError
from regtta.options import check_choice
from regtta.persistence import load_weights

MLP_WIDTH = 100
MLP_HIDDEN_LAYERS = 5
# Name of the linear head by name of the model.
HEADS: Mapping[str, str] = MappingProxyType({"mlp": "15", "resnet26": "fc", "resnet50": "fc", "vit_b16": "head"})
PRETRAINED_MODELS = ("resnet50", "vit_b16")

logger = logging.getLogger(__name__)


def tabular_mlp(inputs: int, outputs: int = 1) -> nn.Sequential:
    """Return California's model: five blocks of Linear(100) without bias, BatchNorm and ReLU, then the head.

    Example:
        >>> sum(parameter.numel() for parameter in tabular_mlp(8).parameters())
        41901
    """
    layers: list[nn.Module] = []
    for index in range(MLP_HIDDEN_LAYERS):
        width = inputs if index == 0 else MLP_WIDTH
        layers += [nn.Linear(width, MLP_WIDTH, bias=False), nn.BatchNorm1d(MLP_WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(MLP_WIDTH, outputs))


def resnet26(outputs: int = 1) -> nn.Module:
    """Return SVHN's model: timm's ResNet-26 with 2048 features, untrained."""
    import timm

    model: nn.Module = timm.create_model("resnet26", num_classes=outputs)
    return model


def resnet50(outputs: int = 1, weights: str | Path | None = None) -> nn.Module:
    """Return the model of UTKFace and Biwi: torchvision's ResNet-50 with 2048 features.

    Args:
        outputs: width of the new head.
        weights: file with a state dict of torchvision's ResNet-50, such as ``IMAGENET1K_V2``; its head is ignored.
    """
    import torchvision

    model: nn.Module = torchvision.models.resnet50(num_classes=outputs)
    return _with_weights(model, weights, head="fc.", name="ResNet-50")


def vit_b16(outputs: int = 1, weights: str | Path | None = None) -> nn.Module:
    """Return timm's ViT-B/16 for 224×224 images, with 768 features.

    Args:
        outputs: width of the new head.
        weights: file with a state dict of timm's ``vit_base_patch16_224``; its head is ignored.
    """
    import timm

    model: nn.Module = timm.create_model("vit_base_patch16_224", num_classes=outputs)
    return _with_weights(model, weights, head="head.", name="ViT-B/16")


def create_model(name: str, outputs: int, *, inputs: int, weights: str | Path | None = None) -> nn.Module:
    """Return the model called ``name``, with random weights except for those read from ``weights``.

    Args:
        name: one of ``HEADS``.
        outputs: number of values or classes to predict.
        inputs: number of columns of a table; ignored for images, which have three channels.
        weights: file with pretrained weights, for the models in ``PRETRAINED_MODELS``.
    """
    check_choice("the model", name, HEADS)
    if name == "mlp":
        return tabular_mlp(inputs, outputs)
    if name == "resnet26":
        return resnet26(outputs)
    return resnet50(outputs, weights) if name == "resnet50" else vit_b16(outputs, weights)


def _with_weights(model: nn.Module, weights: str | Path | None, *, head: str, name: str) -> nn.Module:
    if weights is None:
        logger.warning("%s starts from random weights: unlike in the paper, no ImageNet weights were given.", name)
        return model
    body = {key: value for key, value in load_weights(weights).items() if not key.startswith(head)}
    _check_fit(model, body, head, f"The weights in {weights} do not fit {name}")
    model.load_state_dict(body, strict=False)
    return model


def _check_fit(model: nn.Module, body: Mapping[str, Tensor], head: str, message: str) -> None:
    expected = {key: value.shape for key, value in model.state_dict().items() if not key.startswith(head)}
    found = {key: value.shape for key, value in body.items()}
    differing = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    if differing:
        raise MismatchError(f"{message}: {len(differing)} entries differ, {differing[0]!r} first.")
