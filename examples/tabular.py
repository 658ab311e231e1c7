"""Adapt a tabular regressor to drifting inputs: train, collect, adapt, compare.

The model is trained on calibrated sensor readings; then the gain and the offset of the sensor drift. Labels of the
drifted stream are used only to score the predictions.
"""

import torch
from torch import nn

import regtta


def readings(rows: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (rows, 6) and labels (rows, 1)."""
    x = torch.randn(rows, 6, generator=generator)
    y = torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.5 * x[:, 3:4]
    return x, y


def train(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Return a small trained network with BatchNorm."""
    model = nn.Sequential(
        nn.Linear(6, 64), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(15):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def score(predictions: torch.Tensor, labels: torch.Tensor) -> float:
    """Return R² of all predictions."""
    metrics = regtta.RegressionMetrics()
    metrics.update(predictions, labels)
    return metrics.compute().r2


def main() -> None:
    """Print R² with and without adaptation."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    x, y = readings(8_000, generator)
    model = train(x, y)
    source = regtta.collect(model, x.split(512))
    print(f"source: {source.count} samples, rank {source.rank} of {source.dimensions} features")

    x, y = readings(6_400, generator)
    drifted = x * 1.6 + 0.7
    clean = model(x).detach()
    print(f"R² on clean inputs, without adaptation: {score(clean, y):.3f}")
    for method in (regtta.NoAdaptation(), regtta.BNAdapt(), regtta.SSA(k="auto")):
        adapter = regtta.Adapter(model, method, source)
        online = score(torch.cat([step.predictions for step in adapter.run(drifted.split(64))]), y)
        offline = score(adapter.predict(drifted), y)
        print(f"R² on drifted inputs, {method.name:9s} online {online:.3f}, offline {offline:.3f}")


if __name__ == "__main__":
    main()
