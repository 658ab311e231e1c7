"""Candidate signals of label shift, computed without labels from source and target features.

The direction of each signal is fixed beforehand: ``SIGNALS`` has +1 where larger values indicate label shift, −1 where
they indicate input shift. No signal is fitted.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from regtta.label_shift import LabelShiftEvidence, evidence_of
from regtta.statistics import SourceStatistics
from regtta.whitening import Whitening

SIGNALS: Mapping[str, int] = MappingProxyType(
    {
        "output mean": 1,
        "output variance": -1,
        "reweighting needed": -1,
        "output share": 1,
        "prominence": 1,
        "output mean × √share": 1,
        "rest": -1,
        "leak": -1,
        "support": -1,
        "conditional": -1,
        "conditional support": -1,
        "output share, conditional": 1,
    }
)

BINS = 10
_NOTHING = 1e-9
_PART = 1e-3  # added to denominators, so that shares of a negligible shift stay small


class Profile:
    """Source moments, and feature means by bins of the output for the conditional signals.

    Args:
        statistics: statistics of the source features.
        head: head of the source model.
        features: ``(N, D)`` source features, for the binned means, which ``SourceStatistics`` does not contain.
    """

    def __init__(self, statistics: SourceStatistics, head: nn.Linear, features: Tensor) -> None:
        self.whitening = Whitening.of(statistics, head)
        self.count = statistics.count
        self._weight = head.weight.detach().double()[0]
        self._mean = statistics.mean
        self._sd = float((self._weight @ statistics.covariance() @ self._weight).sqrt())
        k = self.whitening.dimensions
        self._basis = statistics.basis[:, :k]
        self._tail = max(float(statistics.variances[k:].sum()), _NOTHING)
        coordinates, outputs = self._seen(features.double())
        inner = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)[1:-1]
        self._edges = outputs.quantile(inner)
        bins = torch.bucketize(outputs, self._edges)
        self._centres = torch.stack([coordinates[bins == place].mean(dim=0) for place in range(BINS)])
        energy = ((coordinates - self._centres[bins]) ** 2).sum(dim=1)
        self._energies = torch.stack([energy[bins == place].mean() for place in range(BINS)])

    def _seen(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return whitened coordinates ``(B, k)``, and the first output ``(B,)`` standardised by the source."""
        coordinates = (features - self._mean) @ self.whitening.map.double()
        return coordinates, (features - self._mean) @ self._weight / self._sd

    def evidence(self, features: Tensor) -> LabelShiftEvidence:
        """Return the library's evidence of label shift for target features ``(B, D)``."""
        return evidence_of(self.whitening(features), self.whitening, self.count)

    def signals(self, features: Tensor) -> dict[str, float]:
        """Compute all signals for target features ``(B, D)``."""
        features = features.double()
        coordinates, outputs = self._seen(features)
        directions = self.whitening.outputs.double()
        total = _without_chance(coordinates)
        along = _without_chance(coordinates @ directions)
        rest = max(total - along, 0.0)
        bins = torch.bucketize(outputs, self._edges)
        residuals = coordinates - self._centres[bins]
        conditional = _without_chance(residuals)
        centred = features - self._mean
        outside = float((centred**2).sum(dim=1).mean() - ((centred @ self._basis) ** 2).sum(dim=1).mean())
        mean = abs(float(outputs.mean()))
        share = along / (along + rest + _PART)
        return {
            "output mean": mean,
            "output variance": abs(_log(float(outputs.var()))),
            "reweighting needed": total,
            "output share": share,
            "prominence": self.evidence(features).prominence,
            "output mean × √share": mean * math.sqrt(share),
            "rest": rest,
            "leak": _log(outside / self._tail),
            "support": _log(float((coordinates**2).sum(dim=1).mean()) / coordinates.shape[1]),
            "conditional": conditional,
            "conditional support": _log(float((residuals**2).sum(dim=1).mean() / self._energies[bins].mean())),
            "output share, conditional": along / (along + conditional + _PART),
        }


def _without_chance(values: Tensor) -> float:
    """Return ``‖E[z]‖²`` minus the variance of the sample mean, at least 0, for values ``(B, D)``."""
    return max(0.0, float((values.mean(dim=0) ** 2).sum() - values.var(dim=0).sum() / len(values)))


def _log(value: float) -> float:
    return math.log(max(value, _NOTHING))
