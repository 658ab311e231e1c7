"""A batch of three samples with four features and a head, small enough to compute by hand."""

import torch
from torch import nn

from regtta.methods import Batch, MethodContext
from regtta.models.features import Forward
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics

FEATURES = torch.tensor([[1.0, 0.0, 2.0, 0.0], [3.0, 0.0, 0.0, 4.0], [2.0, 6.0, 1.0, 2.0]], dtype=torch.float64)


def head_of(*rows):
    head = nn.Linear(4, len(rows)).double()
    with torch.no_grad():
        head.weight.copy_(torch.tensor(rows))
        head.bias.zero_()
    return head


def source_of(points, extras=None):
    moments = Moments.from_features(torch.as_tensor(points, dtype=torch.float64))
    return SourceStatistics.from_moments(moments, head="", fingerprint="", extras=extras)


def context_of(head, source=None):
    return MethodContext(nn.Sequential(head), head, source)


def batch_of(features=FEATURES, outputs=None, targets=None, inputs=None, forward=None):
    outputs = features if outputs is None else outputs
    forward = forward or (lambda x: Forward(x, x))
    return Batch(features if inputs is None else inputs, features, outputs, targets, forward)
