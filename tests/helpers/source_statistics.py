"""Source statistics of random features of a known rank."""

import numpy as np
import torch

from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics


def features(rows=400, dims=6, rank=4, seed=0):
    rng = np.random.default_rng(seed)
    scales = np.geomspace(5, 0.1, rank)
    return rng.normal(size=(rows, rank)) * scales @ rng.normal(size=(rank, dims)) + rng.normal(size=dims)


def statistics_of(data, head="fc", mark="a" * 64, extras=None):
    values = data.double() if isinstance(data, torch.Tensor) else torch.from_numpy(np.asarray(data, dtype=np.float64))
    moments = Moments.from_features(values)
    return SourceStatistics.from_moments(moments, head=head, fingerprint=mark, extras=extras)
