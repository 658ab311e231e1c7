"""A tabular regressor whose inputs drift: train, collect, adapt, compare.

A sensor's readings y = f(x) are learned on calibrated inputs; then the sensor's gain and offset drift. No
label of the drifted stream is used to adapt, only to show at the end what adapting did.
"""

import torch
from torch import nn

import regtta


def readings(rows: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (rows, 6) and labels (rows, 1)."""
    x = torch.randn(rows, 6, generator=generator)
    y = torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.5 * x[:, 3:4]
    return x, y


def train(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """A small network with BatchNorm."""
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
    """R² of all predictions."""
    metrics = regtta.RegressionMetrics()
    metrics.update(predictions, labels)
    return metrics.compute().r2


def main() -> None:
    """Print R² before and after adapting."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    x, y = readings(8_000, generator)
    model = train(x, y)
    source = regtta.collect(model, x.split(512))
    print(f"source: {source.count} samples, rank {source.rank} of {source.dimensions} features")

    x, y = readings(6_400, generator)
    drifted = x * 1.6 + 0.7
    clean = regtta.Adapter(model, regtta.NoAdaptation()).predict(x)
    print(f"R² on clean inputs, as trained: {score(clean, y):.3f}")
    for method in (regtta.NoAdaptation(), regtta.BNAdapt(), regtta.SSA(k="auto")):
        adapter = regtta.Adapter(model, method, source)
        online = score(torch.cat([step.predictions for step in adapter.run(drifted.split(64))]), y)
        offline = score(adapter.predict(drifted), y)
        print(f"R² on drifted inputs, {method.name:9s} online {online:.3f}, offline {offline:.3f}")


if __name__ == "__main__":
    main()
