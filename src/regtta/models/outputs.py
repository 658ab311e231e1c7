"""Selection of the prediction from what a model returns."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from regtta.errors import ModelError, OptionError
from regtta.models.given_options import call_given, is_key

OutputSelection = str | int | Callable[[Any], Tensor]


def select_output(returned: object, selection: OutputSelection | None = None) -> Tensor:
    """Return the prediction, a tensor ``(B, ...)``, from what a model returned.

    Args:
        returned: a tensor, a tuple, list, dict or dataclass of tensors (such as a ``ModelOutput`` of transformers), or
            a ``torch.distributions.Distribution``.
        selection: the ``output=`` argument of the public functions: a key or attribute, an index, or a callable from
            what the model returns to a tensor. By default the only tensor; ``logits`` if there are several; the mean of
            a distribution; and several tensors of one shape ``(B,)`` or ``(B, O)``, such as mean and variance, side by
            side as columns, in their order. A ``loss`` is ignored.

    Example:
        >>> select_output({"loss": torch.tensor(0.1), "logits": torch.zeros(4, 1)}).shape
        torch.Size([4, 1])
        >>> select_output((torch.zeros(4, 1), torch.ones(4, 1))).tolist()[0]
        [0.0, 1.0]
        >>> select_output((torch.zeros(4, 1), torch.ones(4, 7, 2)), 0).shape
        torch.Size([4, 1])
    """
    found = _default(returned) if selection is None else _selected(returned, selection)
    if isinstance(found, Distribution):
        found = _mean(found)
    if isinstance(found, Tensor) and found.ndim:
        return found
    kind = "a number" if isinstance(found, Tensor) else type(found).__name__
    raise ModelError(
        f"Expected output={selection!r} to select a tensor (B, ...) of predictions, found {kind}."
        if selection is not None
        else f"Expected the model to return a tensor (B, ...) of predictions, found {kind}. Pass output=<key or index> "
        "of the predictions, or output=<callable from what the model returns to a tensor>."
    )


def check_output_selection(selection: object) -> OutputSelection | None:
    """Return a valid ``output=`` argument, or raise an OptionError."""
    if selection is None or callable(selection) or is_key(selection):
        return selection  # type: ignore[return-value]
    raise OptionError(
        "Expected output to be a key, an index, or a callable from what the model returns to a tensor, found "
        f"{selection!r:.80}. Omit it for models that return a tensor."
    )


def _selected(returned: Any, selection: OutputSelection) -> object:
    if callable(selection):
        return call_given("output", selection, returned)
    entries = _entries(returned)
    if isinstance(selection, str):
        if selection in entries:
            return entries[selection]
        if hasattr(returned, selection):  # such as the mean of a distribution
            return getattr(returned, selection)
    elif -len(entries) <= selection < len(entries):
        return list(entries.values())[selection]
    raise ModelError(
        f"There is no output={selection!r} in what the model returns, {_describe(returned)}. Pass a key or an index of "
        "it, or a callable."
    )


def _default(returned: object) -> object:
    if isinstance(returned, Tensor | Distribution):
        return returned
    entries = _entries(returned)
    tensors = {name: value for name, value in entries.items() if _is_prediction(name, value)}
    if len(tensors) == 1:
        return next(iter(tensors.values()))
    if "logits" in tensors:
        return tensors["logits"]
    columns = [value for value in tensors.values() if isinstance(value, Tensor)]
    if (
        columns
        and len(columns) == len(tensors)
        and columns[0].ndim in (1, 2)
        and all(column.shape == columns[0].shape for column in columns)
    ):
        return torch.cat([column.unsqueeze(1) if column.ndim == 1 else column for column in columns], dim=1)
    if not entries:
        return returned
    raise ModelError(
        f"Expected the model to return one tensor of predictions, found {_describe(returned)}. Pass output=<key or "
        "index> of the predictions, or output=<callable from what the model returns to a tensor>."
    )


def _mean(distribution: Distribution) -> Tensor:
    try:
        return distribution.mean
    except NotImplementedError as error:
        raise ModelError(
            f"The model returns a {type(distribution).__name__}, whose mean is not known. Pass output=<callable from "
            "the distribution to a tensor>, such as its median."
        ) from error


def _is_prediction(name: object, value: object) -> bool:
    if isinstance(value, Tensor):
        return name != "loss" and value.ndim > 0
    return isinstance(value, Distribution)


def _entries(returned: Any) -> dict[object, object]:
    """Return the entries of a mapping, a sequence or an object with attributes, by key, index or name."""
    if isinstance(returned, Mapping):
        return dict(returned)
    if hasattr(returned, "_fields"):  # a namedtuple
        return dict(zip(returned._fields, returned, strict=True))
    if isinstance(returned, tuple | list):
        return dict(enumerate(returned))
    return {name: getattr(returned, name) for name in getattr(returned, "__dataclass_fields__", ())}


def _describe(returned: object) -> str:
    entries = _entries(returned)
    shapes = [
        f"{name!r}: {tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__}"
        for name, value in entries.items()
    ]
    kind = type(returned).__name__
    return f"{kind} of {', '.join(shapes)}" if shapes else kind
