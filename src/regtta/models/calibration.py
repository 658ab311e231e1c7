"""Checks of BatchNorm's running statistics, which only training or calibration gives meaningful values."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_NAMED = 3  # layers that a message names


@dataclass(frozen=True)
class BatchNormReport:
    """State of the BatchNorm layers of a model.

    Attributes:
        layers: number of BatchNorm layers.
        error: running statistics that make every output invalid, with the fix; empty if there are none.
        warning: running statistics that are doubtful, with the fix; empty if there are none.
    """

    layers: int
    error: str = ""
    warning: str = ""


@torch.no_grad()
def inspect_batch_norm(model: nn.Module) -> BatchNormReport:
    """Return the state of BatchNorm's running statistics; the model is not changed.

    An error are values that are not finite, and negative variances. Doubtful are layers whose statistics still have
    their initial values, mean 0 and variance 1, and layers of which at least half of the channels have variance 0.
    Single channels of variance 0 are common in trained models. The batch counter tells nothing: weights of other
    libraries are often loaded without it.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        >>> inspect_batch_norm(net).warning[:56]
        'BatchNorm has never seen data: the running statistics of'
        >>> _ = net.train()(torch.randn(8, 2))
        >>> inspect_batch_norm(net)
        BatchNormReport(layers=1, error='', warning='')
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    tracked = {
        name: (layer.running_mean, layer.running_var)
        for name, layer in layers.items()
        if layer.running_mean is not None and layer.running_var is not None
    }
    invalid = [
        n for n, (mean, var) in tracked.items() if not bool((mean.isfinite() & var.isfinite() & (var >= 0)).all())
    ]
    if invalid:
        return BatchNormReport(
            len(layers),
            error=f"The running statistics of BatchNorm are not finite or have negative variances in {_list(invalid)}. "
            "Load weights that are not damaged, or train the model without diverging.",
        )
    initial = [n for n, (mean, var) in tracked.items() if bool((mean == 0).all() and (var == 1).all())]
    if initial:
        return BatchNormReport(
            len(layers),
            warning=f"BatchNorm has never seen data: the running statistics of {_list(initial)} have their initial "
            "values, mean 0 and variance 1. Load the trained weights with their buffers, or run the model on source "
            "data in train mode once.",
        )
    constant = [n for n, (_, var) in tracked.items() if float((var == 0).double().mean()) >= 0.5]
    warning = (
        f"At least half of the channels have a running variance of 0 in {_list(constant)}: BatchNorm multiplies any "
        "change of their inputs by more than a hundred. Check the weights."
        if constant
        else ""
    )
    return BatchNormReport(len(layers), warning=warning)


def _list(names: Sequence[str]) -> str:
    """Return the names of layers as part of a sentence, quoted, since layers of nn.Sequential are called "0", "1"."""
    shown = ", ".join(repr(name) if name else "the model" for name in names[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} other layers" if len(names) > _NAMED else "")
