"""Toy versions of every data set in its published layout, and tiny models in place of the large ones."""

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


class TinyConvNet(nn.Module):
    """Convolutional model with BatchNorm and a head ``fc`` on 16 features, like a ResNet."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.BatchNorm2d(16), nn.ReLU())
        self.fc = nn.Linear(16, outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.body(images).mean(dim=(2, 3)))


class TinyViT(nn.Module):
    """Patch model without BatchNorm and with a head ``head``, like a ViT."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 16, stride=16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.patches(images).flatten(2).transpose(1, 2)).mean(dim=1))


def shrink_models(monkeypatch) -> None:
    """Replace the large models by tiny ones with heads of the same names."""
    monkeypatch.setattr(models, "resnet26", lambda outputs=1: TinyConvNet(outputs))
    monkeypatch.setattr(models, "resnet50", lambda outputs=1, weights=None: TinyConvNet(outputs))
    monkeypatch.setattr(models, "vit_b16", lambda outputs=1, weights=None: TinyViT(outputs))


def write_all_datasets(folder, monkeypatch) -> None:
    """Write every data set at toy size."""
    write_california(folder, rows=90)
    write_svhn(folder, monkeypatch, counts=(40, 20))
    write_mnist(folder, counts=(20, 20))
    write_subset(folder, counts=(40, 20), digits=tuple(range(10)) * 2)
    write_cifar10(folder, monkeypatch)
    write_utkface(folder, face_names(range(10, 60, 2)))
    write_biwi(folder, {"01": 8, "02": 8, "03": 8, "04": 8}, GENDERS)
