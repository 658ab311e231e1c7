"""Models of time series."""

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

from helpers.architectures.entry import Architecture, draw_table, generator


class Recurrent(nn.Module):
    """Recurrent network with a linear layer on its last step, its last state, or every step."""

    def __init__(self, cell: type[nn.RNNBase], read: str, *, both_ways: bool = False, batch_first: bool = True) -> None:
        super().__init__()
        self.rnn = cell(3, 10, batch_first=batch_first, bidirectional=both_ways)
        self.norm = nn.LayerNorm(20 if both_ways else 10)
        self.head = nn.Linear(20 if both_ways else 10, 1)
        self.read, self.batch_first = read, batch_first

    def forward(self, series: Tensor) -> Tensor:
        steps, state = self.rnn(series if self.batch_first else series.transpose(0, 1))
        if self.read == "state":
            hidden = state[0] if isinstance(state, tuple) else state
            return self.head(self.norm(torch.cat(list(hidden), dim=-1)))
        if self.read == "last output":
            outputs = self.head(self.norm(steps))
            return outputs[:, -1] if self.batch_first else outputs[-1]
        if self.read == "last step":
            return self.head(self.norm(steps[:, -1] if self.batch_first else steps[-1]))
        outputs = self.head(self.norm(steps))
        return outputs if self.batch_first else outputs.transpose(0, 1)


class PlainRecurrent(nn.Module):
    """LSTM without normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 10, batch_first=True)
        self.head = nn.Linear(10, 1)

    def forward(self, series: Tensor) -> Tensor:
        return self.head(self.rnn(series)[0][:, -1]).squeeze(-1)


class PackedRecurrent(nn.Module):
    """GRU on padded series with their lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(3)
        self.rnn = nn.GRU(3, 10, batch_first=True)
        self.head = nn.Linear(10, 1)

    def forward(self, series: Tensor, lengths: Tensor) -> Tensor:
        packed = rnn.pack_padded_sequence(self.norm(series), lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][-1])


class TemporalConvolutions(nn.Module):
    """Causal dilated convolutions with weight normalisation, read at the last step."""

    def __init__(self) -> None:
        super().__init__()
        parametrize = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(parametrize(nn.Conv1d(a, 8, 3, dilation=d)) for a, d in ((3, 1), (8, 2)))
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(2))
        self.linear = nn.Linear(8, 1)

    def forward(self, series: Tensor) -> Tensor:
        x = series.transpose(1, 2)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(nn.functional.pad(x, (2 * layer.dilation[0], 0)))).relu()
        return self.linear(x[:, :, -1])


class Encoder(nn.Module):
    """Transformer encoder; the mean of the steps before or after the linear layer, or weighted by attention."""

    def __init__(self, pooling: str) -> None:
        super().__init__()
        self.embedding = nn.Linear(3, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.attention = nn.Linear(16, 1)
        self.regressor = nn.Linear(16, 2)
        self.pooling = pooling

    def forward(self, series: Tensor) -> Tensor:
        steps = self.encoder(self.embedding(series))
        if self.pooling == "features":
            return self.regressor(steps.mean(dim=1))
        if self.pooling == "outputs":
            return self.regressor(steps).mean(dim=1)
        return (self.attention(steps).softmax(dim=1) * self.regressor(steps)).sum(dim=1)


class Standardised(nn.Module):
    """Linear forecaster of a standardised series, whose forecast is scaled back (RevIN)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.hidden = nn.Linear(12, 12)
        self.forecast = nn.Linear(12, 4)

    def forward(self, series: Tensor) -> Tensor:
        mean, deviation = series.mean(dim=1, keepdim=True), series.std(dim=1, keepdim=True) + 1e-5
        scaled = (series - mean) / deviation
        hidden = self.norm(self.hidden(scaled)).relu()
        return self.forecast(hidden) * deviation + mean


class Decomposed(nn.Module):
    """Forecast as the sum of a linear forecast of the trend and one of the rest (DLinear)."""

    def __init__(self) -> None:
        super().__init__()
        self.trend_norm, self.rest_norm = nn.LayerNorm(12), nn.LayerNorm(12)
        self.trend, self.rest = nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, series: Tensor) -> Tensor:
        trend = nn.functional.avg_pool1d(series.unsqueeze(1), 3, 1, 1).squeeze(1)
        return self.trend(self.trend_norm(trend)) + self.rest(self.rest_norm(series - trend))


class Residual(nn.Module):
    """Forecast as the last value and a predicted difference."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.ReLU())
        self.difference = nn.Linear(16, 1)

    def forward(self, series: Tensor) -> Tensor:
        return series[:, -1:] + self.difference(self.body(series))


class Blocks(nn.Module):
    """Two blocks, each of which forecasts what the blocks before it have left over (N-BEATS)."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = nn.ModuleList(nn.Sequential(nn.Linear(12, 10), nn.LayerNorm(10), nn.ReLU()) for _ in range(2))
        self.backcasts = nn.ModuleList(nn.Linear(10, 12) for _ in range(2))
        self.forecasts = nn.ModuleList(nn.Linear(10, 4) for _ in range(2))

    def forward(self, series: Tensor) -> Tensor:
        total = series.new_zeros(series.shape[0], 4)
        for body, backcast, forecast in zip(self.bodies, self.backcasts, self.forecasts, strict=True):
            hidden = body(series)
            series = series - backcast(hidden)
            total = total + forecast(hidden)
        return total


def _conv1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 6, 5),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Conv1d(6, 8, 3),
        nn.InstanceNorm1d(8, affine=True),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(2),
        nn.Flatten(),
        nn.Linear(16, 1),
    )


def _fully_convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 6, 5), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 3, 1), nn.AdaptiveAvgPool1d(1), nn.Flatten()
    )


def _draw_with_lengths(rows: int, seed: int, shift: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    random = generator(seed)
    lengths = torch.randint(3, 8, (rows,), generator=random)
    series = torch.randn(rows, 7, 3, generator=random) * (1 + shift) + shift
    return series * (torch.arange(7) < lengths[:, None]).unsqueeze(-1), lengths, torch.rand(rows, generator=random)


STEPS, VALUES = draw_table(7, 3), draw_table(12)


def _recurrent(name: str, head: str, cell: type[nn.RNNBase], read: str, **options: bool) -> Architecture:
    width = 20 if options.get("both_ways") else 10
    return Architecture(name, "time series", lambda: Recurrent(cell, read, **options), STEPS, head, width)


def _series(name: str, factory: object, draw: object, head: str, width: int, **options: object) -> Architecture:
    return Architecture(name, "time series", factory, draw, head, width, **options)  # type: ignore[arg-type]


TIME_SERIES = (
    _recurrent("LSTM, last step", "head", nn.LSTM, "last step"),
    _recurrent("LSTM, last output", "head[last]", nn.LSTM, "last output"),
    _recurrent("LSTM, last state", "head", nn.LSTM, "state"),
    _recurrent("LSTM, every step", "head[all]", nn.LSTM, "all"),
    _recurrent("LSTM, time first, every step", "head[all/time-first]", nn.LSTM, "all", batch_first=False),
    _recurrent("GRU, time first, last output", "head[last/time-first]", nn.GRU, "last output", batch_first=False),
    _recurrent("GRU, last step", "head", nn.GRU, "last step"),
    _recurrent("LSTM, bidirectional", "head", nn.LSTM, "state", both_ways=True),
    _series("LSTM without normalisation", PlainRecurrent, STEPS, "head", 10),
    _series("GRU on packed series", PackedRecurrent, _draw_with_lengths, "head", 10),
    _series("TCN", TemporalConvolutions, STEPS, "linear", 8),
    _series(
        "TransformerEncoder, mean of steps",
        lambda: Encoder("features"),
        STEPS,
        "regressor",
        16,
        exports=(".pt2", ".onnx"),
    ),
    _series("TransformerEncoder, mean of outputs", lambda: Encoder("outputs"), STEPS, "regressor[mean]", 16),
    _series(
        "TransformerEncoder, weighted outputs",
        lambda: Encoder("attention"),
        STEPS,
        "attention&regressor[custom]",
        16,
        features=lambda steps: steps.mean(dim=1),
    ),
    _series("forecast scaled back (RevIN)", Standardised, VALUES, "forecast", 12),
    _series("sum of two forecasts (DLinear)", Decomposed, VALUES, "trend+rest", 24),
    _series("last value and a difference", Residual, VALUES, "difference", 16),
    _series("residual blocks (N-BEATS)", Blocks, VALUES, "forecasts.0+forecasts.1", 20),
    _series("Conv1d", _conv1d, draw_table(2, 24), "8", 16),
    _series("Conv1d, 1×1 head", _fully_convolutional, draw_table(2, 24), "3[mean]", 6),
)
