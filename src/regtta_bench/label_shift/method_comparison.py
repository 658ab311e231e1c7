"""Comparison of unguarded, cautious and guarded alignment under shifts of labels, inputs or both."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

import regtta
from regtta.guards import DEFAULT, SAFE, Guard
from regtta.methods import Method
from regtta.models import FeatureModel
from regtta.statistics import label_shift_evidence
from regtta_bench.demo.demo_data import make_generator
from regtta_bench.label_shift.cases import tilted_weights
from regtta_bench.label_shift.label_shift_testbeds import LabelShiftTestbed
from regtta_bench.label_shift.measurements import compute_features, round_significant, score_method

CAUTION = "caution"
REAL_TARGET = "the real target"
STREAM_LENGTH = 1024
VERDICT_SAMPLES = 256  # first samples of a stream, from which its verdict is computed


@dataclass(frozen=True)
class GuardedMethod:
    """Method with its guards."""

    method: Method
    guards: tuple[Guard, ...] = DEFAULT


def make_methods(k: int) -> Mapping[str, GuardedMethod]:
    """Return the methods by name; the first is the unadapted source model."""
    plain = partial(regtta.SSA.from_paper, k=k, clip=True)
    free = partial(plain, free_output=True)
    return MappingProxyType(
        {
            "Source": GuardedMethod(regtta.NoAdaptation()),
            "SSA, BN batch": GuardedMethod(plain()),
            "SSA, BN blended": GuardedMethod(plain(batch_norm="blended")),
            "SSA, BN source": GuardedMethod(plain(batch_norm="source")),
            "output free, BN batch": GuardedMethod(free()),
            "output free, BN blended": GuardedMethod(free(batch_norm="blended")),
            "output free, BN source": GuardedMethod(free(batch_norm="source")),
            "SSA guarded by SAFE": GuardedMethod(plain(), SAFE),
        }
    )


# Name of the method chosen by a user who follows the verdict.
BY_VERDICT: Mapping[str, str] = MappingProxyType(
    {
        "none": "Source",
        "labels": "Source",
        "inputs": "SSA, BN batch",
        "both or unclear": "output free, BN source",
    }
)

# By name of the stream: the mean that labels are shifted to, and True if inputs are shifted.
_STREAM_SHIFTS = MappingProxyType(
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
_INPUT_SHIFTS = MappingProxyType({"demo": "contrast ×0.3", "california": "all scaled 0.5"})


def make_streams(testbed: LabelShiftTestbed, count: int = STREAM_LENGTH) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield name, inputs and labels of each stream; the complete real target comes last, in random order."""
    labels = testbed.standardised(testbed.held_out)
    shift = next(shift for shift in testbed.shifts if shift.name == _INPUT_SHIFTS[testbed.data])
    changed = shift.apply(testbed.held_out.inputs, make_generator(testbed.seed, shift.name))
    for name, (mean, moved) in _STREAM_SHIFTS.items():
        weights = torch.ones_like(labels) if mean is None else tilted_weights(labels, mean)
        rows = torch.multinomial(
            weights, count, replacement=True, generator=make_generator(testbed.seed, f"caution: {name}")
        )
        yield name, (changed if moved else testbed.held_out.inputs)[rows], testbed.held_out.targets[rows]
    if testbed.target is not None:
        order = torch.randperm(len(testbed.target), generator=make_generator(testbed.seed, "caution: real"))
        yield REAL_TARGET, testbed.target.inputs[order], testbed.target.targets[order]


def compare_methods(testbed: LabelShiftTestbed, count: int = STREAM_LENGTH) -> Iterator[dict[str, Any]]:
    """Yield one record of JSON values per method and stream."""
    forward = FeatureModel(testbed.model, testbed.statistics.head)
    for stream, inputs, targets in make_streams(testbed, count):
        features = compute_features(forward, inputs[:VERDICT_SAMPLES])
        verdict = label_shift_evidence(testbed.statistics, forward.head, features).verdict
        spread = float(targets.double().var() / testbed.train.targets.double().var())
        for name, guarded in make_methods(testbed.k).items():
            found = score_method(testbed, guarded.method, inputs, targets, guards=guarded.guards)
            yield {
                "record": CAUTION,
                "data": testbed.data,
                "seed": testbed.seed,
                "stream": stream,
                "arm": name,
                "n": len(inputs),
                "verdict": verdict,
                "r2": round_significant(1 - (1 - found) / spread),
            }
