"""Measurements on the cases of one source model: signals, the library's verdict, and for some the gain by adapting."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import regtta
from regtta.adapter import Adapter
from regtta.experiments.demo.seeds import generator
from regtta.experiments.label_shift.benches import Bench
from regtta.experiments.label_shift.cases import COUNTS, Case, cases_of
from regtta.experiments.label_shift.signals import Profile
from regtta.features import FeatureModel
from regtta.guards import DEFAULT, Guard
from regtta.methods import Method

CASE = "case"
HARM_EVERY = 7  # adapt on every seventh of the longest cases only, because adaptation is expensive
_AT_ONCE = 512
_DIGITS = 4


def measured(
    bench: Bench, *, counts: tuple[int, ...] = COUNTS, harm_every: int = HARM_EVERY
) -> Iterator[dict[str, Any]]:
    """Yield one record of JSON values per case of ``bench``."""
    forward = FeatureModel(bench.model, bench.statistics.head)
    profile = Profile(bench.statistics, forward.head, features_of(forward, bench.train.inputs))
    labels = bench.standardised(bench.held_out)
    shown: tuple[str | None, Tensor, Tensor] = (None, torch.empty(0), torch.empty(0))
    longest = 0
    for case in cases_of(bench, counts):
        if shown[0] != case.inputs:
            inputs = shifted_inputs(bench, case)
            shown = (case.inputs, inputs, features_of(forward, inputs))
        rows = case.rows(bench.seed)
        features = shown[2][rows]
        evidence = profile.evidence(features)
        line = {
            "record": CASE,
            "data": bench.data,
            "seed": bench.seed,
            "kind": case.kind,
            "inputs": case.inputs,
            "level": case.shift.level if case.shift else None,
            "mix": case.mix,
            "n": case.count,
            "moved": short(float(case.weights @ labels - labels.mean())),
            "verdict": evidence.verdict,
            "signals": {name: short(value) for name, value in profile.signals(features).items()},
        }
        if case.count == counts[-1]:
            longest += 1
            if longest % harm_every == 0:
                line["gain"] = _gains(bench, shown[1][rows], bench.held_out.targets[rows])
        yield line


def _gains(bench: Bench, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the score gain of unguarded alignment, with BatchNorm statistics of the batch and of the source."""
    before = score(bench, regtta.Source(), inputs, targets)
    arms = {"ssa": regtta.SSA(k=bench.k), "ssa, BN source": regtta.SSA(k=bench.k, batch_norm="source")}
    return {name: short(score(bench, method, inputs, targets) - before) for name, method in arms.items()}


def score(
    bench: Bench, method: Method, inputs: Tensor, targets: Tensor, *, guards: tuple[Guard, ...] = DEFAULT
) -> float:
    """Return the online ``1 − MSE / Var[source labels]``: R² with a denominator independent of the label mix."""
    adapter = Adapter(bench.model, method, bench.statistics, guards=guards)
    found = torch.cat([adapter.adapt(batch).predictions for batch in torch.split(inputs, bench.batch_size)])
    error = (found.reshape(len(targets), -1).double() - targets.double()) ** 2
    return float(1 - error.mean() / bench.train.targets.double().var())


def shifted_inputs(bench: Bench, case: Case) -> Tensor:
    """Return all held-out inputs with the shift of ``case``, the same for all cases of one shift."""
    inputs = bench.held_out.inputs
    if case.shift is None:
        return inputs
    return case.shift.apply(inputs, generator(bench.seed, f"label shift: {case.inputs}"))


def features_of(forward: FeatureModel, inputs: Tensor) -> Tensor:
    """Return the features ``(N, D)`` of all inputs."""
    with torch.no_grad():
        return torch.cat([forward(rows).features for rows in torch.split(inputs, _AT_ONCE)])


def short(value: float) -> float:
    """Round to four significant digits; further ones are noise."""
    return float(f"{value:.{_DIGITS}g}")
