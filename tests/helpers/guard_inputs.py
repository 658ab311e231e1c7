"""Contexts, batches and step statistics that guards receive, small enough to compute by hand."""

import itertools

import pytest
import torch
from torch import nn

from regtta.guards import GuardContext, IncomingBatch, StepStats
from regtta.models.features import Forward
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics


def guard_context(deviations=(2.0, 1.0, 0.01), weight=((1.0, 0.0, 0.0),), mean=(1.0, 0.0, 0.0)):
    """Return the context of a source of three uncorrelated features; the output is the first of them."""
    points = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    points = points * torch.tensor(deviations) * (7 / 8) ** 0.5 + torch.tensor(mean)
    source = SourceStatistics.from_moments(Moments.from_features(points), head="", fingerprint="")
    head = nn.Linear(3, len(weight)).double()
    with torch.no_grad():
        head.weight.copy_(torch.tensor(weight))
    return GuardContext(2, source, head)


def step_stats(features, **numbers):
    """Return the statistics of a step on ``features``."""
    features = torch.as_tensor(features, dtype=torch.float64)
    return StepStats(forward=Forward(features, features), **numbers)


def incoming_batch(features, now=None, moved=False):
    """Return a batch with source features ``features`` and current features ``now``."""
    at_source = Forward(features, features)
    return IncomingBatch(
        features, lambda *_: at_source if now is None else Forward(now, now), lambda *_: at_source, moved=moved
    )  # fmt: skip


def batch_without_forward(inputs):
    """Return a batch on which a forward pass must not be run."""
    return IncomingBatch(inputs, lambda *_: pytest.fail("a forward pass is not needed here"))
