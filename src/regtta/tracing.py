"""From a module to a program of ``torch.export``, and whether what became of it computes the same."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regtta.batches import inputs_of
from regtta.errors import ModelError
from regtta.features import run_model
from regtta.parameters import private_copy

_ABSOLUTE = 1e-5


def at_rest(model: nn.Module, example: object) -> tuple[nn.Module, Tensor]:
    """A copy in eval mode on the CPU, where a file can be used whatever it was made on; the example's rows there."""
    return private_copy(model).cpu().eval(), inputs_of(example).detach().cpu()


def any_rows() -> tuple[dict[int, Any], ...]:
    """That the first dimension of the one input is free; a function, since torch.export takes a while to load."""
    return ({0: torch.export.Dim("batch")},)


def stand_in(rows: Tensor) -> Tensor:
    """Inputs to trace with: programs keep them, so no one's data; two rows, since one would be taken for a constant."""
    return torch.zeros(2, *rows.shape[1:], dtype=rows.dtype)


def captured(model: nn.Module, rows: Tensor) -> "torch.export.ExportedProgram":
    """``model`` as a program for any number of rows such as ``rows``, or the error that says what stands against it."""
    remedy = (
        "Its forward must do the same for any values and any number of rows: torch.where for an if on values, "
        "x.flatten(1) for a view of fixed size. .safetensors takes any model."
    )
    with told("torch.export cannot follow the model", remedy):
        program = torch.export.export(model, (stand_in(rows),), dynamic_shapes=any_rows(), strict=False)
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths and source lines of whoever exports
    return program


@contextlib.contextmanager
def told(what: str, remedy: str) -> Iterator[None]:
    """One error for all that an exporter raises, and silence for what it prints on its way."""
    level = logging.root.manager.disable
    logging.disable(max(level, logging.ERROR))
    heard = io.StringIO()
    try:
        with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (OSError, ModelError):
        raise
    except Exception as error:  # exporters pass on whatever happens inside of them
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        said = str(cause).strip().splitlines() or [""]
        raise ModelError(f"{what} ({type(cause).__name__}: {said[0][:300]}). {remedy}") from error
    finally:
        logging.disable(level)


def check_outputs(who: str, run: Callable[[Tensor], Tensor], model: nn.Module, rows: Tensor) -> None:
    """Raise unless ``run`` gives the model's outputs, on all rows and on one alone."""
    finite = torch.isfinite(rows)  # runtimes differ in what becomes of a NaN
    whole = rows[finite.flatten(1).all(dim=1) if finite.ndim > 1 else finite]
    for part in (whole, whole[:1]) if len(whole) else ():
        with torch.no_grad():
            expected, found = run_model(model, part), run(part)
        if expected.shape != found.shape:
            raise ModelError(
                f"{who} gives outputs of shape {tuple(found.shape)} for {len(part)} rows, where the model gives "
                f"{tuple(expected.shape)}. Let its forward end in one output a row: squeeze(1) instead of squeeze()."
            )
        allowed = _ABSOLUTE + torch.finfo(expected.dtype).eps ** 0.5 * float(expected.nan_to_num().abs().max())
        apart = float((expected.double().nan_to_num() - found.double().nan_to_num()).abs().max())
        if apart > allowed:
            raise ModelError(
                f"{who} gives other outputs than the model: they are up to {apart:.2g} apart, beyond the "
                f"{allowed:.2g} of rounding. The file was not kept. .safetensors carries the weights as they are."
            )


def onnx_session(onnxruntime: Any, path: Path) -> Callable[[Tensor], Tensor]:
    """What runs an ONNX file that was written here."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Tensor:
        return torch.as_tensor(session.run(["output"], {"input": inputs.numpy()})[0])

    return run
