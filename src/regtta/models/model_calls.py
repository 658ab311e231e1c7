"""Calls of a model: its arguments, its prediction, and errors that name their cause."""

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regtta.errors import BatchError
from regtta.models.model_inputs import Inputs, input_tensors
from regtta.models.outputs import OutputSelection, select_output

# Matches torch's error messages about mismatched dtypes, which differ by layer and device.
_DTYPE_ERROR = re.compile(
    r"dtype|data ?type|scalar type|same type|(input|weight|bias|result|output) type|not implemented for '",
    re.IGNORECASE,
)
_ARGUMENTS_ERROR = re.compile(r"forward\(\) (missing|takes|got)")


def run_model(
    model: nn.Module,
    inputs: Inputs,
    tensors: Mapping[str, Tensor] | None = None,
    output: OutputSelection | None = None,
) -> Tensor:
    """Return the prediction of the model; raise a clear error if inputs or output are not of the expected form.

    ``tensors`` replace parameters and buffers by name during the pass. Other errors of the model propagate unchanged.
    """
    try:
        return call_model(model, inputs, tensors, output)
    except (RuntimeError, TypeError, ValueError) as error:
        _check_dtype(model, inputs, error)
        if isinstance(error, TypeError) and _ARGUMENTS_ERROR.search(str(error)):
            raise BatchError(
                f"The model cannot be called with this batch ({error}). Say which entries of a batch it takes with "
                "inputs=<key, index or a list of them>, or inputs=<callable from a batch to (args, kwargs)>."
            ) from error
        raise


def call_model(
    model: nn.Module,
    inputs: Inputs,
    tensors: Mapping[str, Tensor] | None = None,
    output: OutputSelection | None = None,
) -> Tensor:
    """Return the prediction of the model without translating its errors, for compilers, which handle them."""
    args, kwargs = ((inputs,), {}) if isinstance(inputs, Tensor) else (inputs.args, inputs.kwargs)
    if tensors is None:
        returned: Any = model(*args, **kwargs)
    else:
        returned = torch.func.functional_call(model, dict(tensors), args, kwargs)
    return returned if output is None and isinstance(returned, Tensor) else select_output(returned, output)


def _check_dtype(model: nn.Module, inputs: Inputs, error: Exception) -> None:
    """Raise a :class:`BatchError` from ``error`` if it is due to inputs of another dtype than the parameters."""
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point() or p.is_complex()]
    found = [tensor.dtype for tensor in input_tensors(inputs)]
    if not dtypes or set(found) <= set(dtypes) or not _DTYPE_ERROR.search(str(error)):
        return
    other = next(dtype for dtype in found if dtype not in dtypes)
    wanted = str(dtypes[0]).removeprefix("torch.")
    method = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat16"}.get(wanted)
    raise BatchError(
        f"The model cannot take inputs of {other}: its parameters are of {dtypes[0]} "
        f"({type(error).__name__}: {str(error).splitlines()[0]}). Convert the inputs first: "
        + (f"x.{method}()." if method else f"x.to({dtypes[0]}).")
    ) from error


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Set all modules to eval mode inside the block and restore each module's mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def model_device(model: nn.Module) -> torch.device:
    """Return the device of the model's first parameter (or buffer); the CPU for a model without any."""
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")
