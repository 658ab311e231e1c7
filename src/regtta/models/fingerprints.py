"""Digests of tensors and fingerprints of models, which depend only on names, dtypes, shapes and values."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over names, dtypes, shapes and values, independent of order and memory layout.

    Example:
        >>> a, b = torch.zeros(2), torch.ones(1)
        >>> digest_tensors({"a": a, "b": b}) == digest_tensors({"b": b, "a": a})
        True
    """
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(tensor_bytes(value).numpy().data)
    return digest.hexdigest()


def tensor_bytes(tensor: Tensor) -> Tensor:
    """Return the values of a tensor as bytes ``(n,)`` on the CPU, which share its memory where that is possible.

    Example:
        >>> tensor_bytes(torch.tensor([1, 2], dtype=torch.int16))
        tensor([1, 0, 2, 0], dtype=torch.uint8)
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.stride() != (1,):  # one value or none counts as contiguous whatever its stride, but has no view as bytes
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 over the names, dtypes, shapes and values of the model's state dict.

    BatchNorm's batch counters are excluded: they depend on the length of training, not on what the model computes.

    Example:
        >>> a, b = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> b.load_state_dict(a.state_dict())
        <All keys matched successfully>
        >>> fingerprint(a) == fingerprint(b)
        True
    """
    return digest_tensors(
        {
            name: value
            for name, value in model.state_dict().items()
            if isinstance(value, Tensor) and not name.endswith("num_batches_tracked")
        }
    )
