"""Every data set in its real layout, at toy size, and tiny models in the place of the large ones."""

from torch import Tensor, nn

from helpers.published_datasets import (
    face_names,
    write_biwi,
    write_california,
    write_cifar10,
    write_mnist,
    write_subset,
    write_svhn,
    write_utkface,
)
from regtta_bench.training import models

GENDERS = {"01": "female", "02": "male", "03": "female", "04": "male"}


class Convolutions(nn.Module):
    """A head called ``fc`` on sixteen features, with BatchNorm as a ResNet has it."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.BatchNorm2d(16), nn.ReLU())
        self.fc = nn.Linear(16, outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.body(images).mean(dim=(2, 3)))


class Patches(nn.Module):
    """A head called ``head`` on normalised patches, without BatchNorm, as a ViT has it."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 16, stride=16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.patches(images).flatten(2).transpose(1, 2)).mean(dim=1))


def shrink_models(monkeypatch) -> None:
    """The large models become tiny ones with the same heads."""
    monkeypatch.setattr(models, "resnet26", lambda outputs=1: Convolutions(outputs))
    monkeypatch.setattr(models, "resnet50", lambda outputs=1, weights=None: Convolutions(outputs))
    monkeypatch.setattr(models, "vit_b16", lambda outputs=1, weights=None: Patches(outputs))


def write_everything(folder, monkeypatch) -> None:
    """All data sets."""
    write_california(folder, rows=90)
    write_svhn(folder, monkeypatch, counts=(40, 20))
    write_mnist(folder, counts=(20, 20))
    write_subset(folder, counts=(40, 20), digits=tuple(range(10)) * 2)
    write_cifar10(folder, monkeypatch)
    write_utkface(folder, face_names(range(10, 60, 2)))
    write_biwi(folder, {"01": 8, "02": 8, "03": 8, "04": 8}, GENDERS)
