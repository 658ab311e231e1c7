"""Errors of model calls that the inputs cause, raised again as errors that say what to change."""

import re

from torch import nn

from regtta.errors import BatchError
from regtta.models.model_inputs import Inputs, input_tensors

# Matches torch's error messages about mismatched dtypes, which differ by layer and device.
_DTYPE_ERROR = re.compile(
    r"dtype|data ?type|scalar type|same type|(input|weight|bias|result|output) type|not implemented for '",
    re.IGNORECASE,
)
_INDEX_ERROR = re.compile(r"scalar types: Long, Int|tensors used as indices must be", re.IGNORECASE)
_ARGUMENTS_ERROR = re.compile(r"forward\(\) (missing|takes|got)")


def explain_call_error(model: nn.Module, inputs: Inputs, error: Exception) -> None:
    """Raise a :class:`BatchError` from ``error`` if the inputs have a wrong dtype or are not the arguments it takes."""
    _check_dtype(model, inputs, error)
    if isinstance(error, TypeError) and _ARGUMENTS_ERROR.search(str(error)):
        raise BatchError(
            f"The model cannot be called with this batch ({error}). Say which entries of a batch it takes with "
            "inputs=<key, index or a list of them>, or inputs=<callable from a batch to (args, kwargs)>."
        ) from error


def _check_dtype(model: nn.Module, inputs: Inputs, error: Exception) -> None:
    """Raise a :class:`BatchError` from ``error`` if it is due to inputs of another dtype than the parameters."""
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point() or p.is_complex()]
    found = [tensor.dtype for tensor in input_tensors(inputs)]
    if _INDEX_ERROR.search(str(error)):
        raise BatchError(
            f"The model looks up its inputs in a table, such as an nn.Embedding, and needs integers there; the inputs "
            f"are of {', '.join(map(str, found))} ({str(error).splitlines()[0]}). Convert the indices first: x.long()."
        ) from error
    if not dtypes or set(found) <= set(dtypes) or not _DTYPE_ERROR.search(str(error)):
        return
    others = [dtype for dtype in found if dtype not in dtypes]
    # Integers beside other inputs are usually indices, which are right.
    other = next((dtype for dtype in others if dtype.is_floating_point or dtype.is_complex), others[0])
    wanted = str(dtypes[0]).removeprefix("torch.")
    method = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat16"}.get(wanted)
    raise BatchError(
        f"The model cannot take inputs of {other}: its parameters are of {dtypes[0]} "
        f"({type(error).__name__}: {str(error).splitlines()[0]}). Convert the inputs first: "
        + (f"x.{method}()." if method else f"x.to({dtypes[0]}).")
    ) from error
