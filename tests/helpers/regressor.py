"""A small trained regressor, with new samples of its source and of shifted targets."""

import functools

import torch
from torch import Tensor, nn

import regtta

INPUTS = 4


def labels(x: Tensor) -> Tensor:
    return torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.5 * x[:, 3:]


def sample_inputs(rows: int, generator: torch.Generator, *, shift: float = 0.0, scale: float = 1.0) -> Tensor:
    return torch.randn(rows, INPUTS, generator=generator) * scale + shift


@functools.cache
def model_and_statistics() -> tuple[nn.Sequential, regtta.SourceStatistics]:
    """Return a model with R² of about 0.97 on its source, and statistics of 4,000 source samples."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(INPUTS, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(),
        nn.Linear(16, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(400):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - step / 400)
        x = sample_inputs(128, generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), labels(x)).backward()
        optimizer.step()
    model.eval()
    return model, regtta.collect(model, sample_inputs(4000, generator).split(500))


def r_squared(predictions: Tensor, targets: Tensor) -> float:
    return 1 - float(((predictions - targets) ** 2).sum() / ((targets - targets.mean()) ** 2).sum())
