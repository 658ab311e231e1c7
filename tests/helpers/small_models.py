"""Small models and random inputs for tests."""

import numpy as np
import torch
from torch import Tensor, nn


def mlp(outputs: int = 1, *, width: int = 12, inputs: int = 5, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(inputs, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )
    return update_running_statistics(net, torch.randn(256, inputs))


def cnn(outputs: int = 1, *, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 10, 3, stride=2),
        nn.BatchNorm2d(10),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(10, outputs),
    )
    return update_running_statistics(net, torch.rand(64, 3, 16, 16))


class TinyViT(nn.Module):
    """Vision transformer with one attention block, LayerNorm, a mean over tokens and a linear head."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, stride=8)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(16)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(16, outputs)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.drop(self.norm(self.block(tokens)).mean(dim=1)))


def vit(outputs: int = 1, *, seed: int = 0) -> TinyViT:
    torch.manual_seed(seed)
    return TinyViT(outputs).eval()


def update_running_statistics(net: nn.Sequential, inputs: Tensor) -> nn.Sequential:
    """Set the running statistics of BatchNorm to those of ``inputs``, as training does."""
    net.train()
    with torch.no_grad():
        for _ in range(30):
            net(inputs)
    return net.eval()


def table(rows: int, *, shift: float = 0.0, scale: float = 1.0, inputs: int = 5, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, inputs, generator=generator) * scale + shift


def images(rows: int, *, shift: float = 0.0, scale: float = 1.0, seed: int = 1) -> Tensor:
    """Return noise over a vertical gradient, so that the orientation of an image is defined."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(rows, 3, 16, 16, generator=generator)
    return (noise + torch.linspace(0, 1, 16)[:, None]) / 2 * scale + shift


def model_snapshot(model: nn.Module) -> dict[str, object]:
    """Return everything about a model that its use must not change, in comparable form."""
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "modes": {name: module.training for name, module in model.named_modules()},
        "grads": {name: (p.requires_grad, p.grad is None) for name, p in model.named_parameters()},
        "hooks": {
            name: (len(module._forward_hooks), len(module._forward_pre_hooks), len(module._backward_hooks))
            for name, module in model.named_modules()
        },
        "momenta": [getattr(module, "momentum", None) for module in model.modules()],
    }


def assert_unchanged(before: dict[str, object], model: nn.Module) -> None:
    after = model_snapshot(model)
    for key in ("modes", "grads", "hooks", "momenta"):
        assert before[key] == after[key]
    states = before["state"], after["state"]
    assert states[0].keys() == states[1].keys()
    for name in states[0]:
        assert torch.equal(states[0][name], states[1][name]), name


def numpy64(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
