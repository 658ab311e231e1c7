"""Digests of tensors that depend only on their names, dtypes, shapes and values."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over names, dtypes, shapes and values, independent of order and memory layout.

    Example:
        >>> a, b = torch.zeros(2), torch.ones(1)
        >>> digest_of_tensors({"a": a, "b": b}) == digest_of_tensors({"b": b, "a": a})
        True
    """
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
