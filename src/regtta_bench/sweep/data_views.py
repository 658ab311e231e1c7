"""Data as a run needs it: the first rows, class labels for classifiers, and batches of inputs."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta_bench.data import DISCRETE_LABELS, Domain, LoadedDataset, bin_edges, discretise
from regtta_bench.sweep.source_models import SourceSpec
from regtta_bench.training import eval_transform

FORWARD_BATCH_SIZE = 256  # batch size of forward passes without learning


def prepare_data(data: LoadedDataset, spec: SourceSpec) -> LoadedDataset:
    """Return ``data`` for a model of ``spec``: limited to its rows, with class labels for a classifier."""
    train, validation = (first_rows(domain, spec.rows) for domain in (data.train, data.validation))
    if spec.task == "regression" or spec.data in DISCRETE_LABELS:
        return LoadedDataset(train, validation, data.target)
    edges = bin_edges(data.train.targets)
    return LoadedDataset(
        discretise(train, edges), discretise(validation, edges), lambda name: discretise(data.target(name), edges)
    )


def first_rows(domain: Domain, rows: int) -> Domain:
    """Return the first ``rows`` samples of ``domain``; all of them if ``rows`` is 0."""
    return domain.take(torch.arange(min(rows, len(domain)))) if rows else domain


@dataclass(frozen=True)
class InputBatches:
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
        for rows in torch.split(torch.arange(len(self.inputs)), FORWARD_BATCH_SIZE):
            yield eval_transform(self.inputs[rows].to(self.device), self.spec.recipe)
