"""Arguments of a model that takes several tensors, indexed by sample like a single tensor."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from regtta.errors import BatchError


class ModelInputs:
    """Positional and keyword arguments of one call of a model, with one row per sample in every tensor.

    Tensors may be nested in tuples, lists and dicts. Numbers, strings, None and tensors without dimensions are the same
    for every sample and passed unchanged.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.

    Example:
        >>> batch = ModelInputs((), {"ids": torch.zeros(4, 7), "mask": torch.ones(4, 7)})
        >>> len(batch), batch[:2].kwargs["mask"].shape
        (4, torch.Size([2, 7]))
    """

    def __init__(self, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None) -> None:
        self.args = args
        self.kwargs = dict(kwargs or {})
        self.tensors = tuple(_tensors((args, self.kwargs)))
        self._rows = _number_of_rows(self.tensors)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, rows: "slice | Tensor | list[int]") -> "ModelInputs":
        """Return the samples of an index, a mask ``(B,)`` or a slice."""
        return self.map(lambda tensor: tensor[rows])

    def map(self, function: Callable[[Tensor], Tensor]) -> "ModelInputs":
        """Return the arguments with ``function`` applied to every tensor that has one row per sample."""
        return ModelInputs(_map(self.args, function), _map(self.kwargs, function))

    @property
    def device(self) -> torch.device:
        """Device of the first tensor."""
        return self.tensors[0].device

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each tensor."""
        return tuple(tuple(tensor.shape) for tensor in self.tensors)

    @property
    def structure(self) -> str:
        """Description of the arguments without the values of their tensors; equal if only these differ."""
        return repr((_map(self.args, _as_placeholder), _map(self.kwargs, _as_placeholder)))

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "ModelInputs":
        """Return the arguments with all tensors on ``device``."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=non_blocking)

        return ModelInputs(_map(self.args, move, scalars=True), _map(self.kwargs, move, scalars=True))

    def is_inference(self) -> bool:
        """Return True if a tensor was created in inference mode."""
        return any(tensor.is_inference() for tensor in self.tensors)

    def clone(self) -> "ModelInputs":
        """Return the arguments with copies of all tensors."""
        return self.map(torch.clone)

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> "ModelInputs":
        """Return the arguments with other tensors in place of :attr:`tensors`, in the same order."""
        remaining = iter(tensors)
        return self.map(lambda _: next(remaining))

    def __repr__(self) -> str:
        given = [*map(_describe, self.args), *(f"{name}={_describe(value)}" for name, value in self.kwargs.items())]
        return f"ModelInputs({', '.join(given)})"


Inputs = Tensor | ModelInputs


def input_tensors(inputs: Inputs) -> tuple[Tensor, ...]:
    """Return the tensors ``(B, ...)`` of the inputs."""
    return (inputs,) if isinstance(inputs, Tensor) else inputs.tensors


def describe_sample(inputs: Inputs) -> str:
    """Return shape and dtype of one sample as text, for comparison between batches and processes.

    Example:
        >>> describe_sample(torch.zeros(4, 3))
        '(3,) of torch.float32'
    """
    return ", ".join(f"{tuple(tensor.shape[1:])} of {tensor.dtype}" for tensor in input_tensors(inputs))


def dummy_sample(inputs: Inputs) -> Inputs:
    """Return one sample of zeros, for inputs without samples."""

    def zeros(tensor: Tensor) -> Tensor:
        return tensor.new_zeros(1, *tensor.shape[1:])

    return zeros(inputs) if isinstance(inputs, Tensor) else inputs.map(zeros)


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.ndim else []
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return [tensor for part in value for tensor in _tensors(part)] if isinstance(value, tuple | list) else []


def _map(value: Any, function: Callable[[Tensor], Tensor], *, scalars: bool = False) -> Any:
    if isinstance(value, Tensor):
        return function(value) if value.ndim or scalars else value
    if isinstance(value, Mapping):
        return {name: _map(part, function, scalars=scalars) for name, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [_map(part, function, scalars=scalars) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _as_placeholder(_: Tensor) -> Any:
    return "tensor"


def _number_of_rows(tensors: tuple[Tensor, ...]) -> int:
    if not tensors:
        raise BatchError(
            "Expected at least one tensor (B, ...) among the model's inputs, found none. torch.from_numpy converts "
            "arrays to tensors; inputs= selects the entries of a batch that the model takes."
        )
    rows = len(tensors[0])
    if any(len(tensor) != rows for tensor in tensors):
        raise BatchError(
            "Expected one row per sample in every tensor that the model takes, found shapes "
            f"{[tuple(tensor.shape) for tensor in tensors]}. Select the inputs with inputs=<keys or indices>, or build "
            "them with inputs=<callable from a batch to (args, kwargs)>."
        )
    return rows


def _describe(value: object) -> str:
    return f"{tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
