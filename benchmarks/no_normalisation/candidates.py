"""Candidates for what SSA updates in a model without normalisation layers, and the score of one on a stream."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

import regtta
from benchmarks.no_normalisation.source_models import predict, r_squared
from regtta.methods import Method
from regtta_bench.data import Domain

BATCH = 64
DEFAULT_K, DEFAULT_LR = 100, 1e-3  # of SSA
What = Literal["bias", "extractor", "first layer", "last layer"]
LEARNING_RATES: dict[What, tuple[float, ...]] = {
    "bias": (1e-2, 1e-3, 1e-4),
    "extractor": (1e-3, 1e-4, 1e-5),
    "first layer": (1e-2, 1e-3, 1e-4),
    "last layer": (1e-2, 1e-3, 1e-4),
}


@dataclass(frozen=True)
class Candidate:
    """SSA with certain trainable parameters, or no adaptation.

    Attributes:
        what: the parameters that are updated; None for the source model.
        lr: learning rate.
        k: number of directions; ``"auto"`` is the rank, to which the default of 100 is limited in these models.
    """

    what: What | None = None
    lr: float = 0.0
    k: int | Literal["auto"] = "auto"

    @property
    def key(self) -> str:
        """Name in the results."""
        return "Source" if self.what is None else f"{self.what}, lr {self.lr:g}, k={self.k}"

    def method(self, model: nn.Module) -> Method:
        """Return the method for ``model``; layers are selected by an optimizer that receives the whole extractor."""
        if self.what is None:
            return regtta.NoAdaptation()
        if self.what in ("bias", "extractor"):
            return regtta.SSA.from_paper(clip=True, k=self.k, lr=self.lr, trainable=self.what)
        places = layer_positions(model, first=self.what == "first layer")

        def optimizer(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
            extractor = list(parameters)
            return torch.optim.Adam([extractor[place] for place in places], lr=lr)

        return regtta.SSA.from_paper(clip=True, k=self.k, lr=self.lr, trainable="extractor", optimizer=optimizer)


def candidates(network: str) -> tuple[Candidate, ...]:
    """Return the source model and all candidates for a kind of network, those with most directions first.

    Wide networks, which are slower, are run with SSA's default k alone, and not with the learning rate 1e-2.
    """
    wide = network.startswith("wide")
    ks: tuple[int | Literal["auto"], ...] = (DEFAULT_K,) if wide else ("auto", 10)
    tried = (
        Candidate(what, lr, k)
        for k in ks
        for what, rates in LEARNING_RATES.items()
        for lr in rates
        if not (wide and lr > DEFAULT_LR)
    )
    return (Candidate(), *tried)


def layer_positions(model: nn.Module, *, first: bool) -> list[int]:
    """Return the indices of the first or last layer's parameters among those of the extractor.

    A layer is a ``nn.Linear``, or one of the stacked layers of a recurrent module, with its weights and biases.

    Example:
        >>> layer_positions(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1)), first=False)
        [2, 3]
    """
    names = [name for name, _ in model.named_parameters()][:-2]  # without weight and bias of the head
    layers = [name.rpartition("_")[2] if "_l" in name else name.rpartition(".")[0] for name in names]
    chosen = layers[0] if first else layers[-1]
    return [place for place, layer in enumerate(layers) if layer == chosen]


def score_candidate(
    candidate: Candidate, model: nn.Module, statistics: regtta.SourceStatistics, target: Domain
) -> dict[str, float | int]:
    """Adapt over ``target`` once; return R² online and offline, and the numbers of batches and of learned ones."""
    adapter = regtta.Adapter(model, candidate.method(model), statistics)
    steps = [adapter.adapt(batch) for batch in torch.split(target.inputs, BATCH)]
    online = torch.cat([step.predictions for step in steps])
    return {
        "online": round(r_squared(online, target), 5),
        "offline": round(r_squared(predict(adapter.export(), target), target), 5),
        "batches": len(steps),
        "learned": sum(step.adapted for step in steps),
    }
