"""Streams of the golden files, with explicit guards, so that new defaults do not change them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import regtta
from regtta import guards as g
from regtta.methods import Method, Sum

FOLDER = Path(__file__).parent / "0.1.0"

DEFAULT_GUARDS_OF_0_1_0 = (
    g.FiniteInputs(),
    g.MinBatchSize(),
    g.NonConstantInputs(),
    g.FiniteStep(),
)
SAFE_GUARDS_OF_0_1_0 = (
    g.FiniteInputs(),
    g.MinBatchSize(16),
    g.NonConstantInputs(),
    g.Gate(),
    g.LabelShiftGuard(),
    g.StationarityGuard(),
    g.FiniteStep(),
    g.BoundedLoss(),
    g.BoundedDisplacement(),
    g.SubspaceEnergy(),
    g.OutputRange(),
    g.HealthCheck(),
)


@dataclass(frozen=True)
class Golden:
    """Stream that version 0.1.0 saved to a file.

    Attributes:
        model: ``"mlp"`` or ``"cnn"``.
        method: function that creates the method.
        guards: guards of the stream.
        statistics: kind of source statistics in the file name, ``None`` for none.
        batches: number of batches before the checkpoint.
        rows: samples per batch.
    """

    model: str
    method: Callable[[], Method]
    guards: tuple[g.Guard, ...] = DEFAULT_GUARDS_OF_0_1_0
    statistics: str | None = "plain"
    batches: int = 5
    rows: int = 16

    def adapter(self, **options: object) -> regtta.Adapter:
        """Create the adapter of the stream from the golden weights and statistics."""
        source = None
        if self.statistics is not None:
            source = regtta.SourceStatistics.load(FOLDER / f"{self.model}_statistics_{self.statistics}.safetensors")
        chosen = {"guards": self.guards} | options
        return regtta.Adapter(golden_model(self.model), self.method(), source, head=HEADS[self.model], **chosen)


def ssa_of_0_1_0(**options: Any) -> regtta.SSA:
    """Create SSA with the defaults of version 0.1.0."""
    return regtta.SSA.from_paper(**{"clip": True} | options)


def noisy_view(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a view of each input with noise added."""
    return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)


HEADS = {"mlp": "3", "cnn": "5"}

STREAMS: dict[str, Golden] = {
    "mlp_ssa_default": Golden("mlp", lambda: ssa_of_0_1_0(k=3, lr=1e-2)),
    "mlp_ssa_safe": Golden("mlp", lambda: ssa_of_0_1_0(k=3, lr=1e-2), SAFE_GUARDS_OF_0_1_0, batches=20, rows=64),
    "mlp_ssa_momentum": Golden(
        "mlp", lambda: ssa_of_0_1_0(k=3, optimizer=functools.partial(torch.optim.SGD, momentum=0.9), lr=1e-2)
    ),
    "mlp_ssa_factory_class": Golden("mlp", lambda: ssa_of_0_1_0(k=3, optimizer=torch.optim.Adagrad, lr=1e-2)),
    "mlp_ssa_sgd_extractor": Golden("mlp", lambda: ssa_of_0_1_0(k=3, optimizer="sgd", trainable="extractor", lr=1e-3)),
    "mlp_ssa_rmsprop_extractor": Golden(
        "mlp", lambda: ssa_of_0_1_0(k=3, optimizer="rmsprop", trainable="extractor", lr=1e-3)
    ),
    "mlp_ssa_adamw_all": Golden("mlp", lambda: ssa_of_0_1_0(k=3, optimizer="adamw", trainable="all", lr=1e-3)),
    "mlp_ssa_window_blended": Golden("mlp", lambda: ssa_of_0_1_0(k=3, window=24, batch_norm="blended"), rows=8),
    "mlp_feature_restoration": Golden("mlp", regtta.FeatureRestoration, statistics="restoration"),
    "mlp_prototype": Golden("mlp", regtta.Prototype, statistics=None),
    "mlp_bn_adapt": Golden("mlp", regtta.BNAdapt, statistics=None),
    "cnn_ssa_default": Golden("cnn", lambda: ssa_of_0_1_0(k=3, lr=1e-2)),
    "cnn_ssa_safe": Golden("cnn", lambda: ssa_of_0_1_0(k=3, lr=1e-2), SAFE_GUARDS_OF_0_1_0, batches=20, rows=64),
    "cnn_variance_minimization": Golden(
        "cnn",
        lambda: regtta.VarianceMinimization(views=2, augment=noisy_view, trainable="affine", lr=1e-2),
        statistics=None,
    ),
    "mlp_sum": Golden("mlp", lambda: Sum(terms=(ssa_of_0_1_0(k=3, window=8), regtta.FeatureAlignment()), lr=1e-2)),
    "cnn_ssa_adam_extractor": Golden("cnn", lambda: ssa_of_0_1_0(k=3, trainable="extractor")),
}


def golden_model(name: str) -> nn.Sequential:
    """Build the tiny model ``name`` with its golden weights; independent of torch's random numbers."""
    model = architecture(name)
    model.load_state_dict(load_file(FOLDER / f"{name}_weights.safetensors"))
    return model.eval()


def architecture(name: str) -> nn.Sequential:
    """Build the tiny model ``name`` with arbitrary weights."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)
    )
