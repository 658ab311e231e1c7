"""Source models without normalisation layers, and their training with early stopping on source validation data."""

import copy
import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from regtta.metrics import RegressionMetrics
from regtta_bench.data import Domain, ShiftedDataset
from regtta_bench.training import make_seeded

WIDTH, WIDE, DEPTH = 100, 512, 4  # of the MLPs
HIDDEN, LAYERS = 32, 2  # of the recurrent networks
CHANNELS = {"cnn": (1, 8, 16, 32), "wide cnn": (1, 16, 32, 64)}
LR, BATCH, MAX_EPOCHS, PATIENCE = 1e-3, 128, 60, 6


class Recurrent(nn.Module):
    """LSTM or GRU with a linear head on the last hidden state.

    Args:
        cell: ``nn.LSTM`` or ``nn.GRU``.
        columns: inputs per time step.
    """

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], columns: int) -> None:
        super().__init__()
        self.cell = cell(columns, HIDDEN, num_layers=LAYERS, batch_first=True)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, series: Tensor) -> Tensor:
        """Return predictions ``(B, 1)`` of series ``(B, T, D)``."""
        states, _ = self.cell(series)
        output: Tensor = self.head(states[:, -1])
        return output


def make_network(network: str, columns: int) -> nn.Module:
    """Return an untrained network without normalisation layers.

    ``"mlp"`` has four hidden layers of 100, ``"wide mlp"`` of 512; ``"lstm"`` and ``"gru"`` have two layers of 32;
    ``"cnn"`` and ``"wide cnn"``, for digits of 32×32 pixels, have three convolutions and one hidden layer of 100, as a
    small VGG; 512 and 1,024 values enter that layer.
    """
    if network in CHANNELS:
        return _make_cnn(CHANNELS[network])
    if network in ("lstm", "gru"):
        return Recurrent(nn.LSTM if network == "lstm" else nn.GRU, columns)
    width = WIDE if network == "wide mlp" else WIDTH
    widths = [columns, *[width] * DEPTH]
    hidden = [layer for i in range(DEPTH) for layer in (nn.Linear(widths[i], widths[i + 1]), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 1))


def _make_cnn(channels: tuple[int, ...]) -> nn.Module:
    blocks = [
        layer
        for narrow, wide in itertools.pairwise(channels)
        for layer in (nn.Conv2d(narrow, wide, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    hidden = nn.Linear(channels[-1] * 4 * 4, WIDTH)  # 32×32 pixels, halved three times
    return nn.Sequential(*blocks, nn.Flatten(), hidden, nn.ReLU(), nn.Linear(WIDTH, 1))


def train_source_model(network: str, dataset: ShiftedDataset, seed: int) -> nn.Module:
    """Train a network on ``dataset.train`` and return it at its best epoch on ``dataset.validation``, in eval mode."""
    train = dataset.train
    model = make_seeded(lambda: make_network(network, train.inputs.shape[-1]), seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    generator = torch.Generator().manual_seed(seed)
    best, kept, since = float("-inf"), copy.deepcopy(model.state_dict()), 0
    for _ in range(MAX_EPOCHS):
        for rows in torch.split(torch.randperm(len(train), generator=generator), BATCH):
            loss = functional.mse_loss(model(train.inputs[rows]), train.targets[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        score = r_squared(predict(model, dataset.validation), dataset.validation)
        since += 1
        if score > best:
            best, kept, since = score, copy.deepcopy(model.state_dict()), 0
        if since == PATIENCE:
            break
    model.load_state_dict(kept)
    return model.eval()


class SourceModels:
    """Trained source models; the last one is returned again for the same training data, as of two digit shifts."""

    def __init__(self) -> None:
        self._last: tuple[str, int, Domain, nn.Module] | None = None

    def get(self, network: str, dataset: ShiftedDataset, seed: int) -> nn.Module:
        """Return the source model, trained unless it is the last one."""
        if self._last is not None:
            kind, number, train, model = self._last
            same_shape = train.inputs.shape == dataset.train.inputs.shape
            if (kind, number) == (network, seed) and same_shape and torch.equal(train.inputs, dataset.train.inputs):
                return model
        model = train_source_model(network, dataset, seed)
        self._last = (network, seed, dataset.train, model)
        return model


def predict(model: nn.Module, domain: Domain) -> Tensor:
    """Return the predictions ``(N, 1)`` of ``model`` on all samples."""
    with torch.no_grad():
        return torch.cat([model(batch) for batch in torch.split(domain.inputs, 1024)])


def r_squared(predictions: Tensor, domain: Domain) -> float:
    """Return R² of ``predictions`` ``(N, 1)`` on the labels of ``domain``."""
    metrics = RegressionMetrics()
    metrics.update(predictions, domain.targets)
    return float(metrics.compute().r2)
