"""Subjects of the benchmarks: models with source statistics, and streams with and without a shift.

Weights are random, since no time depends on them. BatchNorm's statistics are those of the inputs, and the inputs vary
along few directions, so that features do too: 99 % of their variance lies in 60 to 80 directions. Those of trained
regressors have 20 to 40, which makes guards cheaper than they are here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import regtta
from regtta.statistics import SourceStatistics
from regtta_bench.demo.demo_model import digit_regressor
from regtta_bench.sweep.log_levels import quiet_loggers
from regtta_bench.training import HEADS, resnet26, resnet50, tabular_mlp

FACTORS, NOISE = 2, 0.01  # number of patterns in the inputs
SHIFT, STRETCH = 0.5, 1.3
COLUMNS = 8
_MEANT = (
    "regtta.statistics.source",
    "regtta_bench.training.models",
)  # warn that k is truncated and that weights are random


@dataclass(frozen=True)
class Subject:
    """Specification of a model and its batches.

    Attributes:
        name: name of the model in tables.
        architecture: name of the architecture.
        batch: batch size.
        shape: shape of one sample.
        source_batches: number of batches for the source statistics.
        outputs: number of outputs of the model.
        width: number of features, if the architecture does not determine it.
        k: number of directions that SSA aligns.
    """

    name: str
    architecture: str
    batch: int
    shape: tuple[int, ...]
    source_batches: int = 12
    outputs: int = 1
    width: int = 100
    k: int = 100

    @property
    def title(self) -> str:
        """Model and batch, in tables."""
        return f"{self.name}, batch {self.batch:,}"

    @property
    def head(self) -> str:
        """Name of the linear head."""
        return {"digits": "head", "wide": "9"}.get(self.architecture) or HEADS[self.architecture]


@dataclass(frozen=True, eq=False)
class Testbed:
    """Subject on its device.

    Attributes:
        model: model in eval mode.
        source: source statistics of its features.
        shifted: batches (B, ...) with a shift.
        steady: batches without a shift.
    """

    subject: Subject
    model: nn.Module
    source: SourceStatistics
    shifted: tuple[Tensor, ...]
    steady: tuple[Tensor, ...]


@cache
def make_testbed(subject: Subject, device: torch.device) -> Testbed:
    """Make the model of ``subject`` with its statistics and streams; cached."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = new_model(subject)
    draw = sampler(subject.shape, generator)
    batches = [draw(subject.batch) for _ in range(subject.source_batches)]
    with quiet_loggers(*_MEANT):
        model.to(device)
        set_batch_norm_statistics(model, [batch.to(device) for batch in batches[:4]])
        source = regtta.collect(model, (batch.to(device) for batch in batches), head=subject.head)
    return Testbed(
        subject,
        model,
        source,
        shifted=tuple((draw(subject.batch) * STRETCH + SHIFT).to(device) for _ in range(4)),
        steady=tuple(draw(subject.batch).to(device) for _ in range(8)),
    )


def new_model(subject: Subject) -> nn.Module:
    """Return the untrained model."""
    makers: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: tabular_mlp(subject.shape[0], subject.outputs),
        "wide": lambda: wide_mlp(subject.shape[0], subject.width, subject.outputs),
        "digits": lambda: digit_regressor(seed=0),
        "resnet26": lambda: resnet26(subject.outputs),
        "resnet50": lambda: resnet50(subject.outputs),
    }
    with quiet_loggers(*_MEANT):
        return makers[subject.architecture]()


def wide_mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Make three blocks of a linear layer, BatchNorm and ReLU, the last with ``width`` features, then the head."""
    layers: list[nn.Module] = []
    for before, after in ((inputs, 100), (100, 100), (100, width)):
        layers += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def sampler(shape: tuple[int, ...], generator: torch.Generator) -> Callable[[int], Tensor]:
    """Return a function that draws samples ``(n, *shape)``: a few patterns, smooth over images, and noise."""
    patterns = torch.randn(FACTORS, *shape, generator=generator)
    if len(shape) == 3:
        coarse = torch.randn(FACTORS, shape[0], 4, 4, generator=generator)
        patterns = nn.functional.interpolate(coarse, size=shape[1:], mode="bilinear")

    def draw(samples: int) -> Tensor:
        strengths = torch.randn(samples, FACTORS, generator=generator) / FACTORS**0.5
        noise = NOISE * torch.randn(samples, *shape, generator=generator)
        drawn: Tensor = torch.tensordot(strengths, patterns, dims=1) + noise
        return drawn

    return draw


@torch.no_grad()
def set_batch_norm_statistics(model: nn.Module, batches: list[Tensor]) -> None:
    """Give BatchNorm the statistics of ``batches``, as a training would have; leaves ``model`` in eval mode."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average
    model.train()
    for batch in batches:
        model(batch)
    model.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


MLP = Subject("tabular MLP", "mlp", 64, (COLUMNS,), source_batches=64)
LARGE_MLP = Subject("tabular MLP", "mlp", 256, (COLUMNS,), source_batches=16)
RESNET26 = Subject("ResNet-26, 32×32", "resnet26", 64, (3, 32, 32), source_batches=40)
RESNET50 = Subject("ResNet-50, 224×224", "resnet50", 64, (3, 224, 224), source_batches=48)
DIGITS = Subject("the demo's network, 32×32", "digits", 32, (1, 32, 32), source_batches=32)
TINY_MLP = Subject("tabular MLP", "mlp", 16, (COLUMNS,), source_batches=20)
TINY_IMAGES = Subject("the demo's network, 32×32", "digits", 16, (1, 32, 32), source_batches=20)
