"""Tracing of models with ``torch.export`` for programs and ONNX files, and checks of the exported outputs."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regtta.errors import ModelError
from regtta.models import extract_inputs, private_copy, run_model

_ABSOLUTE = 1e-5


def prepare_for_export(model: nn.Module, example: object) -> tuple[nn.Module, Tensor]:
    """Return a copy of the model in eval mode and the rows of the example, both on the CPU.

    A model exported on the CPU can be loaded on any machine.
    """
    return private_copy(model).cpu().eval(), extract_inputs(example).detach().cpu()


def dynamic_batch_shapes() -> tuple[dict[int, Any], ...]:
    """Return the ``dynamic_shapes`` of one input with a variable batch size.

    This is a function and not a constant because importing torch.export is slow.
    """
    return ({0: torch.export.Dim("batch")},)


def make_dummy_inputs(rows: Tensor) -> Tensor:
    """Return dummy inputs ``(2, ...)`` for tracing.

    Programs store their example inputs, so no user data may be used. A batch size of 1 would be specialized.
    """
    return torch.zeros(2, *rows.shape[1:], dtype=rows.dtype)


def trace_model(model: nn.Module, rows: Tensor) -> "torch.export.ExportedProgram":
    """Export ``model`` as a program for any batch size; raise a ModelError if torch.export cannot trace it."""
    remedy = (
        "Its forward must not depend on values or on the batch size: use torch.where instead of an if on values, and "
        "x.flatten(1) instead of a view of fixed size. .safetensors supports any model."
    )
    with convert_export_errors("torch.export cannot trace the model", remedy):
        program = torch.export.export(
            model, (make_dummy_inputs(rows),), dynamic_shapes=dynamic_batch_shapes(), strict=False
        )
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


def check_same_outputs(runtime: str, run: Callable[[Tensor], Tensor], model: nn.Module, rows: Tensor) -> None:
    """Raise a ModelError unless ``run`` reproduces the model's outputs, for all rows and for a single row.

    Args:
        runtime: name of the runtime, for error messages.
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


def make_onnx_runner(onnxruntime: Any, path: Path) -> Callable[[Tensor], Tensor]:
    """Return a function that runs a trusted ONNX file on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Tensor:
        return torch.as_tensor(session.run(["output"], {"input": inputs.numpy()})[0])

    return run
