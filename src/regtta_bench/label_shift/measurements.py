"""Signals measured on each case of the label-shift study."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

import regtta
from regtta.adapter import Adapter
from regtta.guards import DEFAULT, Guard
from regtta.methods import Method
from regtta.models import FeatureModel
from regtta.statistics import LabelShiftEvidence, SourceStatistics, Whitening, evidence_from_coordinates
from regtta_bench.demo.demo_data import make_generator
from regtta_bench.label_shift.cases import SAMPLE_COUNTS, Case, make_cases
from regtta_bench.label_shift.label_shift_testbeds import LabelShiftTestbed

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

OUTPUT_BINS = 10
_SMALLEST = 1e-9
_SHARE_OFFSET = 1e-3  # added to denominators, so that shares of a negligible shift stay small


class SourceProfile:
    """Source moments, and feature means by bins of the output for the conditional signals.

    Args:
        statistics: statistics of the source features.
        head: head of the source model.
        features: ``(N, D)`` source features, for the binned means, which ``SourceStatistics`` does not contain.
    """

    def __init__(self, statistics: SourceStatistics, head: nn.Linear, features: Tensor) -> None:
        self.whitening = Whitening.from_statistics(statistics, head)
        self.count = statistics.count
        self._weight = head.weight.detach().double()[0]
        self._mean = statistics.mean
        self._sd = float((self._weight @ statistics.covariance() @ self._weight).sqrt())
        k = self.whitening.dimensions
        self._basis = statistics.basis[:, :k]
        self._tail = max(float(statistics.variances[k:].sum()), _SMALLEST)
        coordinates, outputs = self._project(features.double())
        inner = torch.linspace(0, 1, OUTPUT_BINS + 1, dtype=torch.float64)[1:-1]
        self._edges = outputs.quantile(inner)
        bins = torch.bucketize(outputs, self._edges)
        self._centres = torch.stack([coordinates[bins == place].mean(dim=0) for place in range(OUTPUT_BINS)])
        energy = ((coordinates - self._centres[bins]) ** 2).sum(dim=1)
        self._energies = torch.stack([energy[bins == place].mean() for place in range(OUTPUT_BINS)])

    def _project(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return whitened coordinates ``(B, k)``, and the first output ``(B,)`` standardised by the source."""
        coordinates = (features - self._mean) @ self.whitening.map.double()
        return coordinates, (features - self._mean) @ self._weight / self._sd

    def evidence(self, features: Tensor) -> LabelShiftEvidence:
        """Return the library's evidence of label shift for target features ``(B, D)``."""
        return evidence_from_coordinates(self.whitening(features), self.whitening, self.count)

    def signals(self, features: Tensor) -> dict[str, float]:
        """Compute all signals for target features ``(B, D)``."""
        features = features.double()
        coordinates, outputs = self._project(features)
        directions = self.whitening.outputs.double()
        total = _squared_mean_without_noise(coordinates)
        along = _squared_mean_without_noise(coordinates @ directions)
        rest = max(total - along, 0.0)
        bins = torch.bucketize(outputs, self._edges)
        residuals = coordinates - self._centres[bins]
        conditional = _squared_mean_without_noise(residuals)
        centred = features - self._mean
        outside = float((centred**2).sum(dim=1).mean() - ((centred @ self._basis) ** 2).sum(dim=1).mean())
        mean = abs(float(outputs.mean()))
        share = along / (along + rest + _SHARE_OFFSET)
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
            "output share, conditional": along / (along + conditional + _SHARE_OFFSET),
        }


def _squared_mean_without_noise(values: Tensor) -> float:
    """Return ``‖E[z]‖²`` minus the variance of the sample mean, at least 0, for values ``(B, D)``."""
    return max(0.0, float((values.mean(dim=0) ** 2).sum() - values.var(dim=0).sum() / len(values)))


def _log(value: float) -> float:
    return math.log(max(value, _SMALLEST))


CASE = "case"
HARM_EVERY = 7  # adapt on every seventh of the longest cases only, because adaptation is expensive
_FEATURE_BATCH = 512
_DIGITS = 4


def measure_cases(
    testbed: LabelShiftTestbed, *, counts: tuple[int, ...] = SAMPLE_COUNTS, harm_every: int = HARM_EVERY
) -> Iterator[dict[str, Any]]:
    """Yield one record of JSON values per case of ``testbed``."""
    forward = FeatureModel(testbed.model, testbed.statistics.head)
    profile = SourceProfile(testbed.statistics, forward.head, compute_features(forward, testbed.train.inputs))
    labels = testbed.standardised(testbed.held_out)
    shown: tuple[str | None, Tensor, Tensor] = (None, torch.empty(0), torch.empty(0))
    longest = 0
    for case in make_cases(testbed, counts):
        if shown[0] != case.inputs:
            inputs = shifted_inputs(testbed, case)
            shown = (case.inputs, inputs, compute_features(forward, inputs))
        rows = case.rows(testbed.seed)
        features = shown[2][rows]
        evidence = profile.evidence(features)
        line = {
            "record": CASE,
            "data": testbed.data,
            "seed": testbed.seed,
            "kind": case.kind,
            "inputs": case.inputs,
            "level": case.shift.level if case.shift else None,
            "mix": case.mix,
            "n": case.count,
            "moved": round_significant(float(case.weights @ labels - labels.mean())),
            "verdict": evidence.verdict,
            "signals": {name: round_significant(value) for name, value in profile.signals(features).items()},
        }
        if case.count == counts[-1]:
            longest += 1
            if longest % harm_every == 0:
                line["gain"] = _gains(testbed, shown[1][rows], testbed.held_out.targets[rows])
        yield line


def _gains(testbed: LabelShiftTestbed, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the score gain of unguarded alignment, with BatchNorm statistics of the batch and of the source."""
    before = score_method(testbed, regtta.NoAdaptation(), inputs, targets)
    ssa = partial(regtta.SSA.from_paper, k=testbed.k, clip=True)
    methods = {"ssa": ssa(), "ssa, BN source": ssa(batch_norm="source")}
    return {
        name: round_significant(score_method(testbed, method, inputs, targets) - before)
        for name, method in methods.items()
    }


def score_method(
    testbed: LabelShiftTestbed, method: Method, inputs: Tensor, targets: Tensor, *, guards: tuple[Guard, ...] = DEFAULT
) -> float:
    """Return the online ``1 − MSE / Var[source labels]``: R² with a denominator independent of the label mix."""
    adapter = Adapter(testbed.model, method, testbed.statistics, guards=guards)
    found = torch.cat([adapter.adapt(batch).predictions for batch in torch.split(inputs, testbed.batch_size)])
    error = (found.reshape(len(targets), -1).double() - targets.double()) ** 2
    return float(1 - error.mean() / testbed.train.targets.double().var())


def shifted_inputs(testbed: LabelShiftTestbed, case: Case) -> Tensor:
    """Return all held-out inputs with the shift of ``case``, the same for all cases of one shift."""
    inputs = testbed.held_out.inputs
    if case.shift is None:
        return inputs
    return case.shift.apply(inputs, make_generator(testbed.seed, f"label shift: {case.inputs}"))


def compute_features(forward: FeatureModel, inputs: Tensor) -> Tensor:
    """Return the features ``(N, D)`` of all inputs."""
    with torch.no_grad():
        return torch.cat([forward(rows).features for rows in torch.split(inputs, _FEATURE_BATCH)])


def round_significant(value: float) -> float:
    """Round to four significant digits; further ones are noise."""
    return float(f"{value:.{_DIGITS}g}")
