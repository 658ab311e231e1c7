"""Preparation of data for a source model: row limits, class labels for classifiers, and batching."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.experiments.datasets import Domain
from regtta.experiments.datasets.discretising import bin_edges, in_classes
from regtta.experiments.reproduce.loading import DISCRETE, Loaded
from regtta.experiments.sources import SourceSpec
from regtta.experiments.training import plain_view

BATCH = 256  # batch size of forward passes without learning


def shown(data: Loaded, spec: SourceSpec) -> Loaded:
    """Return ``data`` for a model of ``spec``: limited to its rows, with class labels for a classifier."""
    train, validation = (cut(domain, spec.rows) for domain in (data.train, data.validation))
    if spec.task == "regression" or spec.data in DISCRETE:
        return Loaded(train, validation, data.target)
    edges = bin_edges(data.train.targets)
    return Loaded(
        in_classes(train, edges), in_classes(validation, edges), lambda name: in_classes(data.target(name), edges)
    )


def cut(domain: Domain, rows: int) -> Domain:
    """Return the first ``rows`` samples of ``domain``; all of them if ``rows`` is 0."""
    return domain.take(torch.arange(min(rows, len(domain)))) if rows else domain


@dataclass(frozen=True)
class InBatches:
    """Re-iterable batches of a domain's inputs, transformed by the model's evaluation view.

    Attributes:
        inputs: inputs ``(N, ...)`` of the domain.
        spec: specification of the model.
        device: device that the batches are moved to.
    """

    inputs: Tensor
    spec: SourceSpec
    device: str

    def __iter__(self) -> Iterator[Tensor]:
        for rows in torch.split(torch.arange(len(self.inputs)), BATCH):
            yield plain_view(self.inputs[rows].to(self.device), self.spec.recipe)
