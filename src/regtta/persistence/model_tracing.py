"""Tracing of models with ``torch.export`` for programs and ONNX files, and checks of the exported outputs."""

import contextlib
import functools
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regtta.errors import ModelError
from regtta.models import (
    BatchReader,
    InputSelection,
    ModelInputs,
    OutputSelection,
    private_copy,
    run_model,
    select_output,
)

_ABSOLUTE = 1e-5


class PredictionModel(nn.Module):
    """Model that returns only the prediction of another one, and takes the same parameters.

    Args:
        model: the model.
        output: selection of the prediction from what it returns.
    """

    def __init__(self, model: nn.Module, output: OutputSelection | None) -> None:
        super().__init__()
        self.model = model

        @functools.wraps(model.forward)  # torch.export reads the names of the parameters
        def forward(*args: object, **kwargs: object) -> Tensor:
            return select_output(model(*args, **kwargs), output)

        self.forward = forward


def prepare_for_export(
    model: nn.Module,
    example: object,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
) -> tuple[nn.Module, ModelInputs]:
    """Return a copy of the model in eval mode and the arguments of the example, both on the CPU.

    A model exported on the CPU can be loaded on any machine. If the model does not return a tensor, a module around it
    that returns its prediction is exported.
    """
    read = BatchReader(model, inputs)(example)
    copied = private_copy(model).cpu().eval()
    rows = ModelInputs((read,)) if isinstance(read, Tensor) else read
    rows = rows.map(torch.detach).to(torch.device("cpu"))
    dummy = make_dummy_inputs(rows)
    remedy = "torch.export traces models with such inputs. .safetensors supports any model."
    with torch.no_grad(), convert_export_errors("The model does not run on inputs of zeros and ones", remedy):
        plain = output is None and isinstance(copied(*dummy.args, **dummy.kwargs), Tensor)
    return copied if plain else PredictionModel(copied, output), rows


def dynamic_batch_shapes(model: nn.Module, rows: ModelInputs) -> dict[str, Any]:
    """Return the ``dynamic_shapes`` of arguments with a variable batch size, by the name of the parameter."""
    batch = torch.export.Dim("batch")  # importing torch.export is slow, so it is not done at the top

    def shape(value: object) -> object:
        if isinstance(value, Mapping):
            return {name: shape(part) for name, part in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(map(shape, value))
        return {0: batch} if isinstance(value, Tensor) and value.ndim else None

    return {name: shape(value) for name, value in _bound(model, rows).items()}


def input_names(model: nn.Module, rows: ModelInputs) -> list[str]:
    """Return a name for each tensor of the inputs: ``input`` for a single one, else the names of the parameters."""
    if len(rows.tensors) == 1:
        return ["input"]
    return [name for parameter, value in _bound(model, rows).items() for name in _tensor_names(parameter, value)]


def _bound(model: nn.Module, rows: ModelInputs) -> Mapping[str, Any]:
    return inspect.signature(model.forward).bind(*rows.args, **rows.kwargs).arguments


def _tensor_names(name: str, value: object) -> Iterator[str]:
    if isinstance(value, Tensor):
        yield from (name,) if value.ndim else ()
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensor_names(str(key), part)
    elif isinstance(value, tuple | list):
        for number, part in enumerate(value):
            yield from _tensor_names(f"{name}_{number}", part)


def make_dummy_inputs(rows: ModelInputs) -> ModelInputs:
    """Return dummy inputs ``(2, ...)`` for tracing: zeros, and ones for integers and masks.

    Programs store their example inputs, so no user data may be used. A batch size of 1 would be specialized. Lengths of
    sequences are at least 1, and a sequence has a token that is not masked.
    """

    def dummy(tensor: Tensor) -> Tensor:
        fill = torch.zeros if tensor.is_floating_point() or tensor.is_complex() else torch.ones
        return fill(2, *tensor.shape[1:], dtype=tensor.dtype)

    return rows.map(dummy)


def trace_model(model: nn.Module, rows: ModelInputs) -> "torch.export.ExportedProgram":
    """Export ``model`` as a program for any batch size; raise a ModelError if torch.export cannot trace it."""
    remedy = (
        "Its forward must not depend on values or on the batch size: use torch.where instead of an if on values, "
        "x.shape[0] instead of len(x), and x.flatten(1) instead of a view of fixed size. .safetensors supports any "
        "model."
    )
    dummy = make_dummy_inputs(rows)
    with convert_export_errors("torch.export cannot trace the model", remedy):
        shapes = dynamic_batch_shapes(model, rows)
        program = torch.export.export(model, dummy.args, dummy.kwargs, dynamic_shapes=shapes, strict=False)
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # remove paths and source lines of the exporting machine
    return program


@contextlib.contextmanager
def convert_export_errors(problem: str, remedy: str) -> Iterator[None]:
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
        raise ModelError(f"{problem} ({type(cause).__name__}: {lines[0][:300]}). {remedy}") from error
    finally:
        logging.disable(level)


def check_same_outputs(runtime: str, run: Callable[[ModelInputs], Tensor], model: nn.Module, rows: ModelInputs) -> None:
    """Raise a ModelError unless ``run`` reproduces the model's outputs, for all rows and for a single row.

    Args:
        runtime: name of the runtime, for error messages.
        run: computes the outputs of the exported model.
        model: the original model.
        rows: inputs ``(B, ...)`` to compare on.
    """
    # Runtimes treat NaN differently.
    finite = [torch.isfinite(tensor[:, None]).flatten(1).all(dim=1) for tensor in rows.tensors]
    whole = rows[torch.stack(finite).all(dim=0)]
    for part in (whole, whole[:1]) if len(whole) else ():
        with torch.no_grad():
            expected, found = run_model(model, part), run(part)
        if expected.shape != found.shape:
            raise ModelError(
                f"Expected {runtime} to return outputs of shape {tuple(expected.shape)} for {len(part)} rows, as the "
                f"model does, found {tuple(found.shape)}. Let its forward return one output per row: squeeze(1) "
                "instead of squeeze()."
            )
        allowed = _ABSOLUTE + torch.finfo(expected.dtype).eps ** 0.5 * float(expected.nan_to_num().abs().max())
        difference = float((expected.double().nan_to_num() - found.double().nan_to_num()).abs().max())
        if difference > allowed:
            raise ModelError(
                f"The outputs of {runtime} differ from those of the model by up to {difference:.2g}, more than the "
                f"{allowed:.2g} allowed for rounding. The file was not kept. Write .safetensors, which stores the "
                "weights exactly."
            )


def make_onnx_runner(onnxruntime: Any, path: Path) -> Callable[[ModelInputs], Tensor]:
    """Return a function that runs a trusted ONNX file on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    names = [value.name for value in session.get_inputs()]

    def run(rows: ModelInputs) -> Tensor:
        feed = {name: tensor.numpy() for name, tensor in zip(names, rows.tensors, strict=True)}
        return torch.as_tensor(session.run(["output"], feed)[0])

    return run
