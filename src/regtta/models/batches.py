"""Extraction of the model's inputs from the batches of a data loader: tensors, tuples, lists or dicts."""

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from regtta.errors import BatchError

MAX_LABELS = 3  # label tensors beside 2-D inputs; a longer list of tensors of equal shape is a list of samples


def extract_inputs(batch: object, key: str | None = None) -> Tensor:
    """Return the model's inputs (B, ...) of ``batch``, a tensor, ``(x, ...)`` or a dict; labels are dropped.

    A tuple or list is interpreted as ``(inputs, labels, ...)`` only if its other tensors have one row per sample, as
    labels do. A list of samples raises a :class:`BatchError`, since its first sample would be mistaken for a batch.

    Args:
        batch: a batch as yielded by a data loader.
        key: key of the inputs in a dict batch (the ``inputs=`` argument of the public functions).

    Example:
        >>> import torch
        >>> extract_inputs({"image": torch.zeros(2, 3), "age": torch.ones(2)}, "image").shape
        torch.Size([2, 3])
        >>> extract_inputs([torch.zeros(2, 3), torch.ones(2)]).shape
        torch.Size([2, 3])
    """
    if isinstance(batch, Mapping):
        batch = _entry(batch, key)
    elif key is not None:
        raise BatchError(
            f"inputs={key!r} names a key, but the batch is a {type(batch).__name__}, not a dict. "
            "Leave inputs= out: the first element is taken."
        )
    if isinstance(batch, (tuple, list)) and batch and not isinstance(batch, PackedSequence):
        batch = _first_of(batch)
    if isinstance(batch, PackedSequence):
        raise BatchError(
            "Expected a tensor of inputs with one row per sample, found a PackedSequence, whose rows are time steps of "
            "all samples. Pad it, x, lengths = torch.nn.utils.rnn.pad_packed_sequence(batch, batch_first=True), and "
            "pass x; if the model needs the lengths, wrap it in a module that computes them from x."
        )
    if not isinstance(batch, Tensor):
        raise BatchError(
            f"Expected a tensor of inputs, found {type(batch).__name__}. Pass tensors, tuples that "
            "begin with one, or dicts with inputs=<key> (torch.from_numpy converts arrays to tensors)."
        )
    if batch.ndim == 0:
        raise BatchError("Expected inputs of shape (B, ...), found a scalar. Add a batch dimension with x.reshape(1).")
    return batch


def _entry(batch: Mapping[object, object], key: str | None) -> object:
    if key is None and len(batch) == 1:
        return next(iter(batch.values()))
    if key in batch:
        return batch[key]
    problem = "no inputs=<key> was given" if key is None else f"there is no key {key!r}"
    raise BatchError(f"The batch is a dict and {problem}. Pass inputs=<key>; keys here: {list(batch)}.")


def _first_of(batch: Sequence[object]) -> object:
    """Return the first element of ``(inputs, labels, ...)``; raise a BatchError if ``batch`` is not of that form."""
    first = batch[0]
    tensors = [item for item in batch if isinstance(item, Tensor)]
    named = hasattr(batch, "_fields")  # the fields of a namedtuple are unambiguous
    if named or not isinstance(first, Tensor) or first.ndim == 0 or len(tensors) == 1:
        return first
    kind, shapes = type(batch).__name__, [tuple(tensor.shape) for tensor in tensors]
    if len(tensors) == len(batch) and _look_like_samples(tensors):
        raise BatchError(
            f"The batch is a {kind} of {len(tensors)} tensors, all of shape {shapes[0]}: either samples or (inputs, "
            "labels, ...). For samples pass torch.stack(batch), for inputs with labels only the inputs, batch[0]."
        )
    if not _are_labels(first, tensors[1:]):
        raise BatchError(
            f"The batch is a {kind} with tensors of shapes {shapes}. It is interpreted as (inputs, labels, ...), which "
            "must have one row per sample. For a batch of samples pass torch.stack(batch) (of different lengths: "
            "torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)), for one sample x.unsqueeze(0), and for inputs "
            "beside tensors that are not labels only the inputs, batch[0]."
        )
    return first


def _look_like_samples(tensors: Sequence[Tensor]) -> bool:
    """Return True if the tensors share shape and dtype and are too many to be inputs with labels of equal shape.

    Two such tensors are inputs and a target of the same shape, as for an autoencoder. Tables (B, D) may also come with
    weights or masks of their own shape; images and single rows do not.
    """
    first = tensors[0]
    alike = all(tensor.shape == first.shape and tensor.dtype == first.dtype for tensor in tensors[1:])
    return alike and len(tensors) > (1 + MAX_LABELS if first.ndim == 2 else 2)


def _are_labels(inputs: Tensor, others: Sequence[Tensor]) -> bool:
    """Return True if all non-scalar tensors have as many rows as ``inputs``; scalars alone are labels of one sample."""
    rows = [other.size(0) for other in others if other.ndim > 0]
    return all(count == inputs.size(0) for count in rows) if rows else inputs.size(0) == 1
