"""Tracing a model for ``torch.export`` and ONNX, and reading the metadata of ONNX files."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from regtta.errors import FileError, ForeignFileError, MissingFileError, ModelError
from regtta.models import inputs_of, private_copy, run_model

_ABSOLUTE = 1e-5


def at_rest(model: nn.Module, example: object) -> tuple[nn.Module, Tensor]:
    """Return a copy of the model in eval mode and the rows of the example, both on the CPU.

    A model exported on the CPU can be loaded on any machine.
    """
    return private_copy(model).cpu().eval(), inputs_of(example).detach().cpu()


def any_rows() -> tuple[dict[int, Any], ...]:
    """Return the ``dynamic_shapes`` of one input with a variable batch size.

    This is a function and not a constant because importing torch.export is slow.
    """
    return ({0: torch.export.Dim("batch")},)


def stand_in(rows: Tensor) -> Tensor:
    """Return dummy inputs ``(2, ...)`` for tracing.

    Programs store their example inputs, so no user data may be used. A batch size of 1 would be specialized.
    """
    return torch.zeros(2, *rows.shape[1:], dtype=rows.dtype)


def captured(model: nn.Module, rows: Tensor) -> "torch.export.ExportedProgram":
    """Export ``model`` as a program for any batch size; raise a ModelError if torch.export cannot trace it."""
    remedy = (
        "Its forward must not depend on values or on the batch size: use torch.where instead of an if on values, and "
        "x.flatten(1) instead of a view of fixed size. .safetensors supports any model."
    )
    with told("torch.export cannot trace the model", remedy):
        program = torch.export.export(model, (stand_in(rows),), dynamic_shapes=any_rows(), strict=False)
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # remove paths and source lines of the exporting machine
    return program


@contextlib.contextmanager
def told(what: str, remedy: str) -> Iterator[None]:
    """Convert any error of an exporter to a ModelError, and suppress its output, logs and warnings."""
    level = logging.root.manager.disable
    logging.disable(max(level, logging.ERROR))
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (OSError, ModelError):
        raise
    except Exception as error:  # exporters may raise any exception
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        lines = str(cause).strip().splitlines() or [""]
        raise ModelError(f"{what} ({type(cause).__name__}: {lines[0][:300]}). {remedy}") from error
    finally:
        logging.disable(level)


def check_outputs(who: str, run: Callable[[Tensor], Tensor], model: nn.Module, rows: Tensor) -> None:
    """Raise a ModelError unless ``run`` reproduces the model's outputs, for all rows and for a single row.

    Args:
        who: name of the runtime, for error messages.
        run: computes the outputs of the exported model.
        model: the original model.
        rows: ``(B, ...)``, inputs to compare on.
    """
    finite = torch.isfinite(rows)  # runtimes treat NaN differently
    whole = rows[finite.flatten(1).all(dim=1) if finite.ndim > 1 else finite]
    for part in (whole, whole[:1]) if len(whole) else ():
        with torch.no_grad():
            expected, found = run_model(model, part), run(part)
        if expected.shape != found.shape:
            raise ModelError(
                f"Expected {who} to return outputs of shape {tuple(expected.shape)} for {len(part)} rows, as the model "
                f"does, found {tuple(found.shape)}. Let its forward return one output per row: squeeze(1) instead of "
                "squeeze()."
            )
        allowed = _ABSOLUTE + torch.finfo(expected.dtype).eps ** 0.5 * float(expected.nan_to_num().abs().max())
        difference = float((expected.double().nan_to_num() - found.double().nan_to_num()).abs().max())
        if difference > allowed:
            raise ModelError(
                f"The outputs of {who} differ from those of the model by up to {difference:.2g}, more than the "
                f"{allowed:.2g} allowed for rounding. The file was not kept. Write .safetensors, which stores the "
                "weights exactly."
            )


def onnx_session(onnxruntime: Any, path: Path) -> Callable[[Tensor], Tensor]:
    """Return a function that runs a trusted ONNX file on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Tensor:
        return torch.as_tensor(session.run(["output"], {"input": inputs.numpy()})[0])

    return run


_METADATA_PROPS = 14  # field number in ModelProto; each entry has a key (1) and a value (2)
_KEY, _VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_LENGTHS = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10
_MOST_ENTRIES = 10_000


def read_onnx_metadata(path: Path, key: str, *, limit: int) -> bytes | None:
    """Return the metadata value of ``key``, or ``None`` if the file has no such entry.

    Args:
        path: an ONNX file.
        key: key of the entry.
        limit: largest size of one entry, in bytes.
    """
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    try:
        with path.open("rb") as file:
            return _search(file, path.stat().st_size, key.encode(), limit)
    except ValueError as error:
        raise ForeignFileError(f"{path} is not an ONNX file, or is truncated: {error}.") from error
    except OSError as error:
        raise FileError(f"Could not read {path}: {error}.") from error


def _search(file: BinaryIO, size: int, key: bytes, limit: int) -> bytes | None:
    found, entries = None, 0
    if size == 0:
        raise ValueError("the file is empty")
    while file.tell() < size:
        number, length = _field(file, size)
        if number != _METADATA_PROPS:
            file.seek(length, 1)
            continue
        entries += 1
        if length > limit or entries > _MOST_ENTRIES:
            raise ValueError("the metadata is too large")
        end = file.tell() + length
        parts = {}
        while file.tell() < end:
            part, part_length = _field(file, end)
            parts[part] = file.read(part_length)
        if parts.get(_KEY) == key:
            found = parts.get(_VALUE, b"")
    return found


def _field(file: BinaryIO, end: int) -> tuple[int, int]:
    """Read the header of a field and return its number and the number of content bytes that follow."""
    number, wire_type = divmod(_varint(file), 8)
    if wire_type == _VARINT:
        _varint(file)
        length = 0
    elif wire_type == _BYTES:
        length = _varint(file)
    elif wire_type in _FIXED_LENGTHS:
        length = _FIXED_LENGTHS[wire_type]
    else:
        raise ValueError(f"a field has the unknown wire type {wire_type}")
    if number == 0 or file.tell() + length > end:
        raise ValueError("a field extends beyond the end")
    return number, length


def _varint(file: BinaryIO) -> int:
    """Read a base-128 varint: groups of seven bits, lowest first, with the eighth bit set if another group follows."""
    value = 0
    for index in range(_LONGEST_VARINT):
        byte = file.read(1)
        if not byte:
            raise ValueError("the file ends inside a field")
        value |= (byte[0] & 0x7F) << 7 * index
        if byte[0] < 0x80:
            return value
    raise ValueError("a varint is too long")
