"""The data as a source model is shown it: cut to its rows, its labels in classes for a classifier, in batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.experiments.datasets import Domain
from regtta.experiments.datasets.discretising import bin_edges, in_classes
from regtta.experiments.reproduce.loading import DISCRETE, Loaded
from regtta.experiments.sources import SourceSpec
from regtta.experiments.training import plain_view

BATCH = 256  # of passes that do not learn


def shown(data: Loaded, spec: SourceSpec) -> Loaded:
    """``data`` as a model of ``spec`` sees it."""
    train, validation = (cut(domain, spec.rows) for domain in (data.train, data.validation))
    if spec.task == "regression" or spec.data in DISCRETE:
        return Loaded(train, validation, data.target)
    edges = bin_edges(data.train.targets)
    return Loaded(
        in_classes(train, edges), in_classes(validation, edges), lambda name: in_classes(data.target(name), edges)
    )


def cut(domain: Domain, rows: int) -> Domain:
    """The first ``rows`` samples; all where that is 0."""
    return domain.take(torch.arange(min(rows, len(domain)))) if rows else domain


@dataclass(frozen=True)
class InBatches:
    """A domain's inputs as the model is shown them, batch by batch, as often as asked.

    Attributes:
        inputs: all of them.
        spec: of the model.
        device: where to.
    """

    inputs: Tensor
    spec: SourceSpec
    device: str

    def __iter__(self) -> Iterator[Tensor]:
        for rows in torch.split(torch.arange(len(self.inputs)), BATCH):
            yield plain_view(self.inputs[rows].to(self.device), self.spec.recipe)
