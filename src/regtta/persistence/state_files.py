"""Lossless storage of nested states of tensors and plain values in one safetensors file, written atomically.

Tensors are stored under their path in the state, such as ``state/learner/tensors/1.weight``. All other values are
stored as JSON in the metadata, together with a digest of both, so that damaged files are detected.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regtta._version import __version__
from regtta.errors import InvalidFileError, NewerFormatError, OptionError
from regtta.models import tensor_bytes
from regtta.persistence.atomic_files import check_not_existing
from regtta.persistence.safe_read import parse_json
from regtta.persistence.safetensors_files import read_safetensors, write_safetensors

STATE_FORMAT_VERSION = 2  # format 1, which stored the optimizer's state in memory order, can also be read
_KEY = "regtta.state"
_ROOT = "state"
# Dtypes that every version of safetensors supports; tensors of other dtypes are stored as bytes.
_KNOWN = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
)


def write_state(path: str | Path, state: object, *, overwrite: bool = False) -> None:
    """Write ``state`` to ``path`` atomically; an interrupted write leaves an existing file intact.

    Args:
        path: path of the file.
        state: arbitrarily nested dicts, lists and tuples of tensors, numbers, strings, booleans and ``None``, such as
            :meth:`regtta.Adapter.state_dict` returns. The keys of a dict may be any plain values. Instances of
            subclasses, such as an ``OrderedDict``, are restored as their base class.
        overwrite: replace an existing file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
        >>> write_state(path, {"weights": {0: torch.ones(2)}, "betas": (0.9, float("inf")), "good": None})
        >>> read_state(path)
        {'weights': {0: tensor([1., 1.])}, 'betas': (0.9, inf), 'good': None}
    """
    path = check_not_existing(path, overwrite=overwrite)
    tensors: dict[str, Tensor] = {}
    try:
        text = json.dumps(_pack(state, _ROOT, tensors), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"The state cannot be written: {error}.") from error
    about = {"format": STATE_FORMAT_VERSION, "regtta": __version__, "digest": _digest(text, tensors), "state": text}
    write_safetensors(path, tensors, {_KEY: json.dumps(about)})


def read_state(path: str | Path) -> Any:
    """Read a state written by :func:`write_state`; tensors are on the CPU, contiguous and without gradients."""
    path = Path(path)
    tensors, metadata = read_safetensors(path)
    about = _read_header(path, metadata)
    text = about["state"]
    if about.get("digest") != _digest(text, tensors):
        raise InvalidFileError(f"{path} is damaged: its digest does not match its content. Restore it from a backup.")
    try:
        return _unpack(parse_json(text), tensors)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise InvalidFileError(f"{path} has no state that regtta {__version__} can read.") from error


def _read_header(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the header of the file; raise a InvalidFileError if it has none, or a NewerFormatError."""
    try:
        about = parse_json(metadata[_KEY])
        if not isinstance(about, dict):
            raise TypeError(f"expected an object, found {type(about).__name__}")
        version, _ = int(about["format"]), about["state"].encode()
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidFileError(
            f"{path} is not a checkpoint of a stream. Pass a file written by regtta.Checkpoint or by regtta adapt "
            "--checkpoint."
        ) from error
    if version > STATE_FORMAT_VERSION:
        raise NewerFormatError(
            f"{path} has format {version}, but regtta {__version__} reads formats up to {STATE_FORMAT_VERSION}. "
            f"Upgrade regtta (the file was written by version {about.get('regtta')})."
        )
    return dict(about)


def _pack(value: object, path: str, tensors: dict[str, Tensor]) -> object:
    """Return ``value`` as JSON values, with types that JSON does not distinguish tagged; add tensors to ``tensors``."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, list | tuple):
        items = [_pack(item, f"{path}/{index}", tensors) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Mapping):
        return {"dict": [[_pack_key(k), _pack(v, f"{path}/{k}", tensors)] for k, v in value.items()]}
    if isinstance(value, Tensor):
        return _pack_tensor(value, path, tensors)
    raise OptionError(
        f"Expected tensors and plain values in a state, found {type(value).__name__} at {path}. Convert it to a dict, "
        "a list, a number or a string in state_dict()."
    )


def _pack_key(key: object) -> object:
    if key is None or isinstance(key, bool | int | float | str):
        return _pack(key, _ROOT, {})
    raise OptionError(f"Expected plain keys in a state, found {type(key).__name__}. Use strings or numbers.")


def _pack_tensor(tensor: Tensor, path: str, tensors: dict[str, Tensor]) -> dict[str, object]:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise OptionError(
            f"Expected dense tensors in a state, found a sparse or quantized one at {path}. Convert it with "
            ".to_dense() or .dequantize()."
        )
    values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = path
    while name in tensors:  # the keys 0 and "0" have the same path
        name += "'"
    if values.dtype in _KNOWN:
        tensors[name] = values
        return {"tensor": name}
    tensors[name] = tensor_bytes(values)
    return {"tensor": name, "dtype": str(values.dtype).removeprefix("torch."), "shape": list(values.shape)}


def _unpack(packed: Any, tensors: Mapping[str, Tensor]) -> object:
    if isinstance(packed, list):
        return [_unpack(item, tensors) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if "float" in packed:
        return float(packed["float"])
    if "tuple" in packed:
        return tuple(_unpack(item, tensors) for item in packed["tuple"])
    if "dict" in packed:
        return {_unpack(key, tensors): _unpack(value, tensors) for key, value in packed["dict"]}
    return _unpack_tensor(packed, tensors)


def _unpack_tensor(packed: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tensor:
    values = tensors[packed["tensor"]]
    if "dtype" not in packed:
        return values
    dtype = getattr(torch, packed["dtype"])
    return values.view(dtype).reshape(packed["shape"])


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the whole state, independent of the order of tensors in the file."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        values = tensors[name]
        digest.update(f"\0{name}\0{values.dtype}\0{tuple(values.shape)}\0".encode())
        digest.update(tensor_bytes(values).numpy().data)
    return digest.hexdigest()
