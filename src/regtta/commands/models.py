"""Loading of the model named on the command line and of its weights."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from regtta.commands.explaining import explaining, told
from regtta.commands.imports import import_name
from regtta.errors import MismatchError, ModelError, OptionError
from regtta.files import load_weights

_NAMED_AT_MOST = 3


def load_model(factory: str, weights: Path | None = None, device: str | None = None) -> nn.Module:
    """Return the model that ``factory`` creates, with ``weights`` loaded, on ``device``.

    Args:
        factory: ``package.module:name`` of a ``torch.nn.Module``, or of a function without arguments that returns one.
        weights: state dict, in safetensors or from ``torch.save``.
        device: such as ``cuda:0``; by default the one the factory chose.
    """
    model = _make(factory)
    if weights is not None:
        _fill(model, load_weights(weights), f"The weights {weights} do not fit the model of {factory}")
    if device is not None:
        _move(model, device)
    return model


def floating_dtype(model: nn.Module) -> torch.dtype:
    """Return the data type of the model's first floating-point parameter; float32 if it has none.

    Example:
        >>> floating_dtype(nn.Linear(2, 1).double())
        torch.float64
    """
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _make(factory: str) -> nn.Module:
    made = import_name(factory, "--model")
    if not isinstance(made, nn.Module):
        if not callable(made):
            raise OptionError(
                f"Expected --model {factory} to be a function that returns a model, found {type(made).__name__}."
            )
        with explaining(lambda: f"--model {factory} raised", "It is called without arguments."):
            made = made()
    if not isinstance(made, nn.Module):
        raise ModelError(f"Expected {factory} to return a torch.nn.Module, found {type(made).__name__}.")
    return made


def _fill(model: nn.Module, weights: Mapping[str, Tensor], message: str) -> None:
    wanted = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    # Older checkpoints lack the batch counter of BatchNorm, and torch accepts that as well.
    missing = [n for n in wanted if n not in weights and not n.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in wanted]
    misshapen = [
        f"{name!r} is {tuple(weights[name].shape)} in the file and {tuple(value.shape)} in the model"
        for name, value in wanted.items()
        if name in weights and weights[name].shape != value.shape
    ]
    problems = [f"missing {_some(missing)}"] if missing else []
    problems += [f"unexpected {_some(unexpected)}"] if unexpected else []
    problems += misshapen[:_NAMED_AT_MOST]
    if problems:
        raise MismatchError(f"{message}: {'; '.join(problems)}. {_remedy(unexpected)}")
    with explaining(lambda: message):
        model.load_state_dict(dict(weights), strict=False)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
    return ", ".join(repr(name) for name in names[:_NAMED_AT_MOST]) + more


def _remedy(unexpected: list[str]) -> str:
    if unexpected and all(name.startswith("module.") for name in unexpected):
        return "They come from a DataParallel wrapper: save model.module.state_dict() instead."
    return "Pass the weights of this architecture, or the factory of the model that the weights belong to."


def _move(model: nn.Module, device: str) -> None:
    try:
        model.to(torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch raises any of these
        raise OptionError(f"Cannot use --device {device}: {told(error)}. Leave it out to run on the CPU.") from error
