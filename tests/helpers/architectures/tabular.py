"""Models of tables and of integers: outputs of every form, reparametrised layers, and Lightning modules."""

import warnings
from collections.abc import Callable

import lightning
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from helpers.architectures.entry import Architecture, Draw, draw_table, generator

TABLE = draw_table(5)
EXPORTED = (".pt2", ".onnx")


def body(width: int = 12) -> nn.Sequential:
    """Return a feature extractor of tables with five columns."""
    return nn.Sequential(nn.Linear(5, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())


class Regressor(nn.Module):
    """Body and named linear layers; ``combine(model, features)`` returns what the model returns."""

    def __init__(self, combine: object, **widths: int) -> None:
        super().__init__()
        self.body = body()
        self.combine = combine
        for name, width in widths.items():
            self.add_module(name, nn.Linear(12, width))

    def forward(self, x: Tensor) -> object:
        return self.combine(self, self.body(x))  # type: ignore[operator]


def _outputs(
    name: str, head: str, combine: object, *, output: object = None, exports: tuple[str, ...] = (), **widths: int
) -> Architecture:
    return Architecture(
        name, "outputs", lambda: Regressor(combine, **widths), TABLE, head, 12, output=output, exports=exports
    )


def _gaussian(model: Regressor, z: Tensor) -> tuple[Tensor, Tensor]:
    return model.mean(z), nn.functional.softplus(model.variance(z))


def _normal(model: Regressor, z: Tensor) -> Normal:
    mean, deviation = model.out(z).unbind(dim=1)
    return Normal(mean, deviation.exp())


class Unstandardised(nn.Module):
    """Model that returns its output in the units of the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = body()
        self.fc = nn.Linear(12, 1)
        self.register_buffer("label_mean", torch.tensor(40.0))
        self.register_buffer("label_deviation", torch.tensor(12.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x)).squeeze(-1) * self.label_deviation + self.label_mean


class Ensemble(nn.Module):
    """Mean of three networks."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList(nn.Sequential(*body(6), nn.Linear(6, 1)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members]).mean(dim=0)


class ResidualTable(nn.Module):
    """Residual network of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 16)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(16), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16)) for _ in range(2)
        )
        self.last = nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


class FeatureTokens(nn.Module):
    """Transformer with one token per column, numeric or categorical (FT-Transformer)."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(5, 16))
        self.categories = nn.Embedding(12, 16)
        self.summary = nn.Parameter(torch.randn(1, 1, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, norm_first=True)
        self.head = nn.Sequential(nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        tokens = [self.summary.expand(numbers.shape[0], -1, -1), numbers.unsqueeze(-1) * self.scale]
        return self.head(self.block(torch.cat([*tokens, self.categories(categories)], dim=1))[:, 0])


class DeepSet(nn.Module):
    """Model of sets of points with a mask, summed over points."""

    def __init__(self) -> None:
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, 12), nn.LayerNorm(12), nn.ReLU())
        self.whole = nn.Sequential(nn.Linear(12, 12), nn.ReLU())
        self.fc = nn.Linear(12, 1)

    def forward(self, points: Tensor, mask: Tensor | None = None) -> Tensor:
        values = self.point(points)
        values = values if mask is None else values * mask.unsqueeze(-1)
        return self.fc(self.whole(values.sum(dim=1)))


class GraphConvolutions(nn.Module):
    """Graph network on dense adjacency matrices, with the mean over nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 10), nn.Linear(10, 10)
        self.norm = nn.LayerNorm(10)
        self.readout = nn.Linear(10, 1)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        nodes = (adjacency @ self.first(nodes)).relu()
        nodes = self.norm(adjacency @ self.second(nodes)).relu()
        return self.readout(nodes.mean(dim=1)).squeeze(-1)


class Bag(nn.Module):
    """Model of bags of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(30, 12)
        self.norm = nn.LayerNorm(12)
        self.fc = nn.Linear(12, 1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.fc(self.norm(self.embedding(ids)).relu())


class LightningRegressor(lightning.LightningModule):
    """Lightning module with a ``forward`` of one input; the loader yields ``(x, y)``."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(*body(), nn.Linear(12, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(-1)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return nn.functional.mse_loss(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def _weight_norm(norm: object) -> nn.Module:
    return nn.Sequential(norm(nn.Linear(5, 12)), nn.LayerNorm(12), nn.ReLU(), norm(nn.Linear(12, 1)))  # type: ignore[operator]


def _old_weight_norm(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated, and still in use
        return nn.utils.weight_norm(layer)


def _lazy() -> nn.Module:
    model = nn.Sequential(nn.LazyLinear(12), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(1))
    model(torch.randn(8, 5))
    return model


def _draw_columns(rows: int, seed: int, shift: float = 0.0) -> dict[str, Tensor]:
    random = generator(seed)
    return {
        "numbers": torch.randn(rows, 5, generator=random) * (1 + shift) + shift,
        "categories": torch.randint(0, 6, (rows, 2), generator=random) + 6 * int(shift > 0),
        "target": torch.rand(rows, generator=random),
    }


def _draw_points(rows: int, seed: int, shift: float = 0.0) -> dict[str, Tensor]:
    random = generator(seed)
    mask = torch.arange(6) < torch.randint(2, 7, (rows, 1), generator=random)
    return {"points": torch.randn(rows, 6, 3, generator=random) * (1 + shift), "mask": mask, "y": torch.rand(rows)}


def _draw_graphs(rows: int, seed: int, shift: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    random = generator(seed)
    edges = (torch.rand(rows, 5, 5, generator=random) < 0.4 + 0.3 * shift).float() + torch.eye(5)
    nodes = torch.randn(rows, 5, 4, generator=random) + shift
    return nodes, edges / edges.sum(dim=2, keepdim=True), torch.rand(rows, generator=random)


def _draw_bags(rows: int, seed: int, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    random = generator(seed)
    return torch.randint(0, 15, (rows, 6), generator=random) + 15 * int(shift > 0), torch.rand(rows, generator=random)


def _table(
    name: str, family: str, factory: Callable[[], nn.Module], head: str, width: int = 12, draw: Draw = TABLE
) -> Architecture:
    return Architecture(name, family, factory, draw, head, width)


TABULAR = (
    _table("MLP", "tables", lambda: nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1)), "2"),
    _table("MLP with BatchNorm", "tables", lambda: nn.Sequential(*body(), nn.Linear(12, 1)), "5"),
    _table("MLP with a head without bias", "tables", lambda: nn.Sequential(*body(), nn.Linear(12, 2, bias=False)), "5"),
    _table("residual network", "tables", ResidualTable, "last.2", 16),
    _table("FT-Transformer", "tables", FeatureTokens, "head.2", 16, _draw_columns),
    _table("ensemble of three", "tables", Ensemble, "members.0.5+members.1.5+members.2.5", 18),
    _table("LightningModule", "lightning", LightningRegressor, "net.5"),
    _table("deep set with a mask", "sets and graphs", DeepSet, "fc", 12, _draw_points),
    _table("graph convolutions", "sets and graphs", GraphConvolutions, "readout", 10, _draw_graphs),
    _table("EmbeddingBag", "sets and graphs", Bag, "fc", 12, _draw_bags),
    _table("LazyLinear after its first call", "layers", _lazy, "3"),
    _table("weight_norm, old style", "layers", lambda: _weight_norm(_old_weight_norm), "3"),
    _table("weight_norm, parametrised", "layers", lambda: _weight_norm(nn.utils.parametrizations.weight_norm), "3"),
    _table("spectral_norm, parametrised", "layers", lambda: _weight_norm(nn.utils.parametrizations.spectral_norm), "3"),
    _outputs("mean and variance in two columns", "out", lambda m, z: m.out(z), out=2),
    _outputs("mean and variance as a tuple", "mean&variance", _gaussian, mean=1, variance=1, exports=EXPORTED),
    _outputs("the mean only, output=0", "mean", _gaussian, mean=1, variance=1, output=0),
    _outputs("torch.distributions.Normal", "out", _normal, out=2),
    _outputs("two heads, concatenated", "a&b", lambda m, z: torch.cat([m.a(z), m.b(z)], dim=1), a=1, b=2),
    _outputs("two heads as a tuple", "a&b", lambda m, z: (m.a(z), m.b(z)), a=1, b=1),
    _outputs(
        "two heads as a dict",
        "age&height",
        lambda m, z: {"age": m.age(z), "height": m.height(z)},
        age=1,
        height=1,
        exports=EXPORTED,
    ),
    _outputs(
        "one of two outputs, output='age'",
        "age",
        lambda m, z: {"age": m.age(z), "map": z.unsqueeze(1)},
        age=1,
        output="age",
    ),
    _outputs("sigmoid after the head", "out", lambda m, z: m.out(z).sigmoid(), out=1),
    _outputs("softplus and scale after the head", "out", lambda m, z: 100 * nn.functional.softplus(m.out(z)), out=1),
    _outputs("quantiles, sorted", "out", lambda m, z: m.out(z).sort(dim=1).values, out=3),
    _table("scaled back to units", "outputs", Unstandardised, "fc"),
)
