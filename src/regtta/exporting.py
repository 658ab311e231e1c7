"""The adapted model as a file: a state dict, a ``torch.export`` program or ONNX.

Each carries a :class:`Provenance`: which model it was, which method adapted it over how many batches, and when.
The program and ONNX take any number of rows. Both hold the model in eval mode on the CPU, and neither any
data: the example alone says of what form the inputs are, and a file is kept only if it gives the model's
own outputs on it.
"""

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regtta.errors import (
    ForeignFileError,
    MissingFileError,
    ModelError,
    ModelMismatchError,
    OptionError,
)
from regtta.files import read_metadata, refuse_existing, write_safetensors, written_whole
from regtta.onnx_metadata import read_onnx_metadata
from regtta.optional_imports import import_optional
from regtta.provenance import Provenance
from regtta.statistics import fingerprint
from regtta.tracing import any_rows, at_rest, captured, check_outputs, onnx_session, stand_in, told

__all__ = [
    "PROVENANCE",
    "SUFFIXES",
    "Provenance",
    "check_exportable",
    "check_packages",
    "read_provenance",
    "save",
    "save_onnx",
    "save_program",
    "save_state_dict",
]

PROVENANCE = "regtta.provenance"
STATE_DICT, PROGRAM, ONNX = SUFFIXES = (".safetensors", ".pt2", ".onnx")

_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_MOST_PROVENANCE = 2**20  # bytes; ours take about one thousand
_MOST_ONNX = 2**31 - 2**24  # bytes of weights: protobuf ends at 2 GiB, and the graph needs room too


def save(
    path: str | Path, model: nn.Module, provenance: Provenance, example: object = None, *, overwrite: bool = False
) -> None:
    """Write ``model`` in the format that the ending of ``path`` names.

    Args:
        path: ends in ``.safetensors``, ``.pt2`` or ``.onnx``.
        model: what ``adapter.export()`` gave.
        provenance: what ``adapter.provenance()`` gave at the same time.
        example: a batch of inputs, for all but ``.safetensors``; only its form goes into the file.
        overwrite: replace a file that exists.

    Example:
        >>> import tempfile, regtta
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        >>> adapter = regtta.Adapter(model, regtta.BNAdapt(), head="2")
        >>> step = adapter.adapt(torch.randn(4, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "adapted.safetensors")
        ...     save(path, adapter.export(), adapter.provenance())
        ...     read_provenance(path).learned
        1
    """
    suffix = _suffix(path)
    if suffix == STATE_DICT:
        save_state_dict(path, model, provenance, overwrite=overwrite)
        return
    if example is None:
        raise OptionError(f"{path}: pass example=<a batch>, which says what the model's inputs look like.")
    write = save_program if suffix == PROGRAM else save_onnx
    write(path, model, provenance, example, overwrite=overwrite)


def save_state_dict(path: str | Path, model: nn.Module, provenance: Provenance, *, overwrite: bool = False) -> None:
    """Write the weights as safetensors, for ``load_state_dict`` of a model of the same architecture."""
    path = refuse_existing(path, overwrite=overwrite)
    _check_belonging(model, provenance)
    state = model.state_dict()
    others = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if others:
        raise ModelError(f"A state dict on disk holds tensors alone, but {others[0]!r} in the model is none.")
    write_safetensors(path, state, {PROVENANCE: provenance.text()})


@torch.inference_mode(False)  # nothing can be traced there
def save_program(
    path: str | Path, model: nn.Module, provenance: Provenance, example: object, *, overwrite: bool = False
) -> None:
    """Write a program for ``torch.export.load``, which needs no Python code of the model's.

    Args:
        path: best ends in ``.pt2``.
        model: what ``adapter.export()`` gave.
        provenance: what ``adapter.provenance()`` gave at the same time.
        example: a batch of inputs; only its form goes into the file.
        overwrite: replace a file that exists.
    """
    path = refuse_existing(path, overwrite=overwrite)
    _check_belonging(model, provenance)
    plain, rows = at_rest(model, example)
    program = captured(plain, rows)
    with written_whole(path) as draft, told("The program cannot be written", ".safetensors keeps the weights alone."):
        with draft.open("wb") as file:
            torch.export.save(program, file, extra_files={PROVENANCE: provenance.text()})
        with draft.open("rb") as file:
            # The archive is our own, and the way that its users will take is the one to check.
            loaded = torch.export.load(file).module()
        check_outputs("The program", loaded, plain, rows)


@torch.inference_mode(False)
def save_onnx(
    path: str | Path, model: nn.Module, provenance: Provenance, example: object, *, overwrite: bool = False
) -> None:
    """Write ONNX, with ``input`` and ``output`` as the names of its ends, in one file.

    Needs ``pip install 'regtta[export]'``. The arguments are those of :func:`save_program`.
    """
    path = refuse_existing(path, overwrite=overwrite)
    packages = check_packages(ONNX)
    _check_belonging(model, provenance)
    size = sum(value.nbytes for value in model.state_dict().values() if isinstance(value, Tensor))
    if size > _MOST_ONNX:
        raise ModelError(
            f"The model has {size / 2**30:.1f} GiB of weights, and one ONNX file holds at most 2. Write .pt2 or "
            ".safetensors, or halve its precision with model.half()."
        )
    plain, rows = at_rest(model, example)
    program = captured(plain, rows)
    with told("The model cannot be written as ONNX", "Write .pt2, which takes every operation."):
        converted = torch.onnx.export(
            program,
            (stand_in(rows),),
            dynamo=True,
            dynamic_shapes=any_rows(),
            input_names=["input"],
            output_names=["output"],
            verbose=False,
        )
        if converted is None:
            raise RuntimeError("the exporter gave nothing back")
        converted.model.metadata_props[PROVENANCE] = provenance.text()
    with written_whole(path) as draft:
        with told("The ONNX file cannot be written", "Write .pt2 instead."):
            converted.save(draft, external_data=False)
        with told("onnxruntime cannot run the model", "Write .pt2, or try another precision: model.float()."):
            run = onnx_session(packages["onnxruntime"], draft)
            check_outputs("onnxruntime", run, plain, rows)


def read_provenance(path: str | Path) -> Provenance:
    """Where the model in a file comes from, whichever of the three it is; nothing in it is run or unpickled."""
    path = Path(path)
    suffix = _suffix(path)
    text: str | bytes | None
    if suffix == STATE_DICT:
        text = read_metadata(path).get(PROVENANCE)
    elif suffix == PROGRAM:
        text = _archived(path)
    else:
        text = read_onnx_metadata(path, PROVENANCE, limit=_MOST_PROVENANCE)
    if text is None:
        raise ForeignFileError(f"{path} says nothing about where it comes from: regtta did not export it.")
    try:
        return Provenance.from_text(text)
    except OptionError as error:
        raise ForeignFileError(f"{path}: {error}") from error


def check_packages(suffix: str) -> dict[str, Any]:
    """The packages that writing a file with this ending needs, or the error that says what to install."""
    if suffix != ONNX:
        return {}
    return {name: import_optional(name, "export", "ONNX export") for name in _PACKAGES}


@torch.inference_mode(False)
def check_exportable(model: nn.Module, example: object) -> None:
    """Raise unless ``torch.export`` can follow ``model``, which program and ONNX both need."""
    captured(*at_rest(model, example))


def _check_belonging(model: nn.Module, provenance: Provenance) -> None:
    found = fingerprint(model)
    if found != provenance.adapted:
        raise ModelMismatchError(
            f"The provenance is of another model: expected fingerprint {provenance.adapted[:12]}…, found "
            f"{found[:12]}…. Call adapter.export() and adapter.provenance() with no batch between them."
        )


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise OptionError(f"Expected a file that ends in {' or '.join(SUFFIXES)}, found {path}.")
    return suffix


def _archived(path: Path) -> bytes | None:
    """The provenance in a program's archive, where each torch has its own folder for it."""
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [item for item in archive.infolist() if Path(item.filename).name == PROVENANCE]
            if not entries:
                return None
            with archive.open(entries[0]) as file:
                text = file.read(_MOST_PROVENANCE + 1)
    # A damaged archive shows in any of these ways.
    except (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError, ValueError) as error:
        raise ForeignFileError(f"{path} is not a program of torch.export, or is damaged: {error}.") from error
    if len(text) > _MOST_PROVENANCE:
        raise ForeignFileError(f"{path} holds a provenance of more than {_MOST_PROVENANCE} bytes: it is not ours.")
    return text
