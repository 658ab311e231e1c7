"""Comparison of unguarded, cautious and guarded alignment under shifts of labels, inputs or both."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

import regtta
from regtta.guards import DEFAULT, SAFE, Guard
from regtta.methods import Method
from regtta.models import FeatureModel
from regtta.statistics import label_shift_evidence
from regtta_bench.demo.demo_data import generator
from regtta_bench.label_shift.cases import tilted
from regtta_bench.label_shift.label_shift_testbeds import Bench
from regtta_bench.label_shift.measurements import features_of, score, short

CAUTION = "caution"
REAL = "the real target"
COUNT = 1024
JUDGED = 256  # first samples of a stream, from which its verdict is computed


@dataclass(frozen=True)
class Arm:
    """Method with its guards."""

    method: Method
    guards: tuple[Guard, ...] = DEFAULT


def arms_of(k: int) -> Mapping[str, Arm]:
    """Return the arms by name; the first is the unadapted source model."""
    free: Any = {"k": k, "free_output": True}
    return MappingProxyType(
        {
            "Source": Arm(regtta.NoAdaptation()),
            "SSA, BN batch": Arm(regtta.SSA(k=k)),
            "SSA, BN blended": Arm(regtta.SSA(k=k, batch_norm="blended")),
            "SSA, BN source": Arm(regtta.SSA(k=k, batch_norm="source")),
            "output free, BN batch": Arm(regtta.SSA(**free)),
            "output free, BN blended": Arm(regtta.SSA(**free, batch_norm="blended")),
            "output free, BN source": Arm(regtta.SSA(**free, batch_norm="source")),
            "SSA guarded by SAFE": Arm(regtta.SSA(k=k), SAFE),
        }
    )


# Arm chosen by a user who follows the verdict.
BY_VERDICT: Mapping[str, str] = MappingProxyType(
    {
        "none": "Source",
        "labels": "Source",
        "inputs": "SSA, BN batch",
        "both or unclear": "output free, BN source",
    }
)

# By name of the stream: the mean that labels are shifted to, and True if inputs are shifted.
_MOVES = MappingProxyType(
    {
        "no shift": (None, False),
        "labels −1 sd": (-1.0, False),
        "labels −0.5 sd": (-0.5, False),
        "labels +0.5 sd": (0.5, False),
        "labels +1 sd": (1.0, False),
        "inputs": (None, True),
        "inputs, labels +0.5 sd": (0.5, True),
    }
)
_INPUTS = MappingProxyType({"demo": "contrast ×0.3", "california": "all scaled 0.5"})


def streams_of(bench: Bench, count: int = COUNT) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield name, inputs and labels of each stream; the complete real target comes last, in random order."""
    labels = bench.standardised(bench.held_out)
    shift = next(shift for shift in bench.shifts if shift.name == _INPUTS[bench.data])
    changed = shift.apply(bench.held_out.inputs, generator(bench.seed, shift.name))
    for name, (mean, moved) in _MOVES.items():
        weights = torch.ones_like(labels) if mean is None else tilted(labels, mean)
        rows = torch.multinomial(weights, count, replacement=True, generator=generator(bench.seed, f"caution: {name}"))
        yield name, (changed if moved else bench.held_out.inputs)[rows], bench.held_out.targets[rows]
    if bench.target is not None:
        order = torch.randperm(len(bench.target), generator=generator(bench.seed, "caution: real"))
        yield REAL, bench.target.inputs[order], bench.target.targets[order]


def compared(bench: Bench, count: int = COUNT) -> Iterator[dict[str, Any]]:
    """Yield one record of JSON values per arm and stream."""
    forward = FeatureModel(bench.model, bench.statistics.head)
    for stream, inputs, targets in streams_of(bench, count):
        features = features_of(forward, inputs[:JUDGED])
        verdict = label_shift_evidence(bench.statistics, forward.head, features).verdict
        spread = float(targets.double().var() / bench.train.targets.double().var())
        for name, arm in arms_of(bench.k).items():
            found = score(bench, arm.method, inputs, targets, guards=arm.guards)
            yield {
                "record": CAUTION,
                "data": bench.data,
                "seed": bench.seed,
                "stream": stream,
                "arm": name,
                "n": len(inputs),
                "verdict": verdict,
                "r2": short(1 - (1 - found) / spread),
            }
