"""The paper's models, each with a linear head of as many outputs as asked for.

ResNet-50 and ViT-B/16 start from ImageNet's weights in the paper. They are read from a file that the user has; without
one the model starts from random weights, and says so.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from torch import Tensor, nn

from regtta.errors import MismatchError
from regtta.files import load_weights
from regtta.options import check_choice

WIDTH = 100
HIDDEN_LAYERS = 5
# Every model by name, and its linear head.
HEADS: Mapping[str, str] = MappingProxyType({"mlp": "15", "resnet26": "fc", "resnet50": "fc", "vit_b16": "head"})
FROM_IMAGENET = ("resnet50", "vit_b16")

logger = logging.getLogger(__name__)


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


def resnet50(outputs: int = 1, weights: str | Path | None = None) -> nn.Module:
    """The ResNet-50 of torchvision with 2048 features: UTKFace's and Biwi's model.

    Args:
        outputs: of the new head.
        weights: a state dict of torchvision's ResNet-50, such as ``IMAGENET1K_V2``; its head is left out.
    """
    import torchvision

    model: nn.Module = torchvision.models.resnet50(num_classes=outputs)
    return _started(model, weights, head="fc.", name="ResNet-50")


def vit_b16(outputs: int = 1, weights: str | Path | None = None) -> nn.Module:
    """The ViT-B/16 of timm for 224×224 images, with 768 features.

    Args:
        outputs: of the new head.
        weights: a state dict of timm's ``vit_base_patch16_224``; its head is left out.
    """
    import timm

    model: nn.Module = timm.create_model("vit_base_patch16_224", num_classes=outputs)
    return _started(model, weights, head="head.", name="ViT-B/16")


def model_of(name: str, outputs: int, *, inputs: int, weights: str | Path | None = None) -> nn.Module:
    """The model called ``name``, with random weights but for those that ``weights`` holds.

    Args:
        name: one of ``HEADS``.
        outputs: numbers or classes to predict.
        inputs: columns of a table; of images no more than three channels are known.
        weights: for the models that start from ImageNet's.
    """
    check_choice("the model", name, HEADS)
    if name == "mlp":
        return tabular_mlp(inputs, outputs)
    if name == "resnet26":
        return resnet26(outputs)
    return resnet50(outputs, weights) if name == "resnet50" else vit_b16(outputs, weights)


def _started(model: nn.Module, weights: str | Path | None, *, head: str, name: str) -> nn.Module:
    if weights is None:
        logger.warning("%s starts from random weights: no file of ImageNet's was named, as the paper has.", name)
        return model
    body = {key: value for key, value in load_weights(weights).items() if not key.startswith(head)}
    _check_fit(model, body, head, f"The weights {weights} are not those of {name}")
    model.load_state_dict(body, strict=False)
    return model


def _check_fit(model: nn.Module, body: Mapping[str, Tensor], head: str, complaint: str) -> None:
    wanted = {key: value.shape for key, value in model.state_dict().items() if not key.startswith(head)}
    found = {key: value.shape for key, value in body.items()}
    apart = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    if apart:
        raise MismatchError(f"{complaint}: {len(apart)} entries differ, {apart[0]!r} first.")
