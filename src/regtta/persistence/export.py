"""Export of adapted models as a state dict (safetensors), a ``torch.export`` program or ONNX.

Each file includes a :class:`Provenance`: the source model, the method, the number of batches and the time. Programs and
ONNX files hold the model in eval mode on the CPU and accept any batch size. They contain no data: the example only
determines shape and dtype of the inputs. A file is kept only if it reproduces the model's outputs on the example.
"""

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regtta.errors import (
    InvalidFileError,
    MissingFileError,
    ModelError,
    ModelMismatchError,
    OptionError,
)
from regtta.models import InputSelection, OutputSelection, fingerprint
from regtta.optional_imports import import_optional
from regtta.persistence.atomic_files import atomic_write, check_not_existing
from regtta.persistence.model_tracing import (
    check_same_outputs,
    convert_export_errors,
    dynamic_batch_shapes,
    input_names,
    make_dummy_inputs,
    make_onnx_runner,
    prepare_for_export,
    trace_model,
)
from regtta.persistence.onnx_metadata import read_onnx_metadata
from regtta.persistence.provenance import Provenance
from regtta.persistence.safetensors_files import read_metadata, write_safetensors

__all__ = [
    "PROVENANCE",
    "SUFFIXES",
    "Provenance",
    "check_exportable",
    "check_packages",
    "read_provenance",
    "save_model",
    "save_onnx",
    "save_program",
    "save_state_dict",
]

PROVENANCE = "regtta.provenance"
STATE_DICT, PROGRAM, ONNX = SUFFIXES = (".safetensors", ".pt2", ".onnx")

_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_MAX_PROVENANCE_BYTES = 2**20  # bytes; a typical one has about one thousand
_MAX_ONNX_BYTES = 2**31 - 2**24  # bytes of weights: protobuf is limited to 2 GiB, which includes the graph


def save_model(
    path: str | Path,
    model: nn.Module,
    provenance: Provenance,
    example: object = None,
    *,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
    overwrite: bool = False,
) -> None:
    """Write ``model`` in the format given by the suffix of ``path``.

    Args:
        path: path ending in ``.safetensors``, ``.pt2`` or ``.onnx``.
        model: the result of ``adapter.export()``.
        provenance: the result of ``adapter.provenance()``, taken at the same time.
        example: a batch, required unless the suffix is ``.safetensors``; only its shapes and dtypes are stored.
        inputs: entries of the example that the model takes, as for :class:`regtta.Adapter`.
        output: prediction in what the model returns, as for :class:`regtta.Adapter`. A model that does not return a
            tensor is exported with its prediction as the only output.
        overwrite: replace an existing file.

    Example:
        >>> import tempfile, regtta
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        >>> adapter = regtta.Adapter(model, regtta.BNAdapt(), head="2")
        >>> step = adapter.adapt(torch.randn(4, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "adapted.safetensors")
        ...     save_model(path, adapter.export(), adapter.provenance())
        ...     read_provenance(path).learned
        1
    """
    suffix = _suffix(path)
    if suffix == STATE_DICT:
        save_state_dict(path, model, provenance, overwrite=overwrite)
        return
    if example is None:
        raise OptionError(f"{path}: pass example=<a batch>, which determines shape and dtype of the model's inputs.")
    write = save_program if suffix == PROGRAM else save_onnx
    write(path, model, provenance, example, inputs=inputs, output=output, overwrite=overwrite)


def save_state_dict(path: str | Path, model: nn.Module, provenance: Provenance, *, overwrite: bool = False) -> None:
    """Write the weights as safetensors, for ``load_state_dict`` of a model with the same architecture."""
    path = check_not_existing(path, overwrite=overwrite)
    _check_fingerprint(model, provenance)
    state = model.state_dict()
    others = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if others:
        raise ModelError(
            f"Expected a state dict of tensors only, found {type(state[others[0]]).__name__} at {others[0]!r}. Remove "
            "it from the model's state dict, or write .pt2."
        )
    write_safetensors(path, state, {PROVENANCE: provenance.to_json()})


@torch.inference_mode(False)  # tracing does not work in inference mode
def save_program(
    path: str | Path,
    model: nn.Module,
    provenance: Provenance,
    example: object,
    *,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
    overwrite: bool = False,
) -> None:
    """Write a program for ``torch.export.load``, which does not need the model's Python code.

    Args:
        path: path, preferably ending in ``.pt2``.
        model: the result of ``adapter.export()``.
        provenance: the result of ``adapter.provenance()``, taken at the same time.
        example: a batch; only its shapes and dtypes are stored.
        inputs: entries of the example that the model takes, as for :class:`regtta.Adapter`.
        output: prediction in what the model returns, as for :class:`regtta.Adapter`.
        overwrite: replace an existing file.
    """
    path = check_not_existing(path, overwrite=overwrite)
    _check_fingerprint(model, provenance)
    eval_model, rows = prepare_for_export(model, example, inputs, output)
    program = trace_model(eval_model, rows)
    with (
        atomic_write(path) as temporary,
        convert_export_errors("The program cannot be written", "Write the weights as .safetensors."),
    ):
        with temporary.open("wb") as file:
            torch.export.save(program, file, extra_files={PROVENANCE: provenance.to_json()})
        with temporary.open("rb") as file:
            # Loading is safe, since the archive was written just now, and tests what users will load.
            loaded = torch.export.load(file).module()
        check_same_outputs("the program", lambda part: loaded(*part.args, **part.kwargs), eval_model, rows)


@torch.inference_mode(False)
def save_onnx(
    path: str | Path,
    model: nn.Module,
    provenance: Provenance,
    example: object,
    *,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
    overwrite: bool = False,
) -> None:
    """Write a single ONNX file with one output named ``output``.

    A single input is named ``input``; several have the names of the model's parameters. Needs
    ``pip install 'regtta[export]'``. The arguments are those of :func:`save_program`.
    """
    path = check_not_existing(path, overwrite=overwrite)
    packages = check_packages(ONNX)
    _check_fingerprint(model, provenance)
    size = sum(value.nbytes for value in model.state_dict().values() if isinstance(value, Tensor))
    if size > _MAX_ONNX_BYTES:
        raise ModelError(
            f"The model has {size / 2**30:.1f} GiB of weights, but an ONNX file holds at most 2. Write .pt2 or "
            ".safetensors, or convert the model with model.half()."
        )
    eval_model, rows = prepare_for_export(model, example, inputs, output)
    program = trace_model(eval_model, rows)
    with convert_export_errors("The model cannot be written as ONNX", "Write .pt2, which supports every operation."):
        dummy = make_dummy_inputs(rows)
        converted = torch.onnx.export(
            program,
            dummy.args,
            kwargs=dummy.kwargs,
            dynamo=True,
            dynamic_shapes=dynamic_batch_shapes(eval_model, rows),
            input_names=input_names(eval_model, rows),
            output_names=["output"],
            verbose=False,
        )
        if converted is None:
            raise RuntimeError("the exporter returned None")
        converted.model.metadata_props[PROVENANCE] = provenance.to_json()
    with atomic_write(path) as temporary:
        with convert_export_errors("The ONNX file cannot be written", "Write .pt2 instead."):
            converted.save(temporary, external_data=False)
        with convert_export_errors(
            "onnxruntime cannot run the model", "Write .pt2, or try another precision: model.float()."
        ):
            run = make_onnx_runner(packages["onnxruntime"], temporary)
            check_same_outputs("onnxruntime", run, eval_model, rows)


def read_provenance(path: str | Path) -> Provenance:
    """Return the provenance stored in an exported file of any format; no code is run and nothing is unpickled."""
    path = Path(path)
    suffix = _suffix(path)
    text: str | bytes | None
    if suffix == STATE_DICT:
        text = read_metadata(path).get(PROVENANCE)
    elif suffix == PROGRAM:
        text = _read_from_archive(path)
    else:
        text = read_onnx_metadata(path, PROVENANCE, limit=_MAX_PROVENANCE_BYTES)
    if text is None:
        raise InvalidFileError(f"{path} has no provenance: regtta did not export it.")
    try:
        return Provenance.from_json(text)
    except OptionError as error:
        raise InvalidFileError(f"{path}: {error}") from error


def check_packages(suffix: str) -> dict[str, Any]:
    """Return the packages needed to write a file with this suffix, by name; raise if one is not installed."""
    if suffix != ONNX:
        return {}
    return {name: import_optional(name, "export", "ONNX export") for name in _PACKAGES}


@torch.inference_mode(False)
def check_exportable(
    model: nn.Module,
    example: object,
    *,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
) -> None:
    """Raise a ModelError unless ``torch.export`` can trace ``model``, as ``.pt2`` and ``.onnx`` require."""
    trace_model(*prepare_for_export(model, example, inputs, output))


def _check_fingerprint(model: nn.Module, provenance: Provenance) -> None:
    found = fingerprint(model)
    if found != provenance.adapted:
        raise ModelMismatchError(
            f"The provenance belongs to a different model: expected fingerprint {provenance.adapted[:12]}…, found "
            f"{found[:12]}…. Call adapter.export() and adapter.provenance() with no batch between them."
        )


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise OptionError(f"Expected a path that ends in {' or '.join(SUFFIXES)}, found {path}.")
    return suffix


def _read_from_archive(path: Path) -> bytes | None:
    """Return the provenance in a program's archive, whose folder layout depends on the version of torch."""
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [item for item in archive.infolist() if Path(item.filename).name == PROVENANCE]
            if not entries:
                return None
            with archive.open(entries[0]) as file:
                text = file.read(_MAX_PROVENANCE_BYTES + 1)
    # A damaged archive can raise any of these.
    except (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError, ValueError) as error:
        raise InvalidFileError(f"{path} is not a torch.export program, or is damaged: {error}.") from error
    if len(text) > _MAX_PROVENANCE_BYTES:
        raise InvalidFileError(
            f"{path} has a provenance of more than {_MAX_PROVENANCE_BYTES} bytes: regtta did not export it."
        )
    return text
