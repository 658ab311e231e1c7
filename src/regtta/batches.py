"""The model's inputs inside what a data loader yields: a tensor, a tuple or list that begins with one, or a dict."""

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from regtta.errors import BatchError

MOST_LABELS = 3  # beside inputs of two dimensions: more tensors of the inputs' own shape are samples, not labels


def inputs_of(batch: object, key: str | None = None) -> Tensor:
    """Return the model's inputs (B, ...) inside ``batch``: a tensor, ``(x, ...)`` or a dict; the rest is dropped.

    A tuple or list is read as ``(inputs, labels, ...)`` only if that can be meant: its other tensors have one row a
    sample, as labels have. Lists of samples are refused, since their first sample would be taken for a whole batch.

    Args:
        batch: what a loader yields.
        key: where in a dict batch the input lies (the ``inputs=`` of the public calls).

    Example:
        >>> import torch
        >>> inputs_of({"image": torch.zeros(2, 3), "age": torch.ones(2)}, "image").shape
        torch.Size([2, 3])
        >>> inputs_of([torch.zeros(2, 3), torch.ones(2)]).shape
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
            "Expected a tensor of inputs with one row a sample, found a PackedSequence, whose rows are time steps of "
            "all samples. Pad it, x, lengths = torch.nn.utils.rnn.pad_packed_sequence(batch, batch_first=True), and "
            "pass x; where the model needs the lengths, wrap it in a module that finds them in x."
        )
    if not isinstance(batch, Tensor):
        raise BatchError(
            f"Expected a tensor of inputs, found {type(batch).__name__}. Give tensors, tuples that "
            "begin with one, or dicts with inputs=<key> (torch.from_numpy turns arrays into tensors)."
        )
    if batch.ndim == 0:
        raise BatchError("Expected inputs of shape (B, ...), found a single number.")
    return batch


def _entry(batch: Mapping[object, object], key: str | None) -> object:
    if key is None and len(batch) == 1:
        return next(iter(batch.values()))
    if key in batch:
        return batch[key]
    asked = "no inputs=<key> was given" if key is None else f"there is no key {key!r}"
    raise BatchError(f"The batch is a dict and {asked}. Pass inputs=<key>; keys here: {list(batch)}.")


def _first_of(batch: Sequence[object]) -> object:
    """The first element of ``(inputs, labels, ...)``, or the error that says why the batch is not of that form."""
    first = batch[0]
    tensors = [item for item in batch if isinstance(item, Tensor)]
    named = hasattr(batch, "_fields")  # a namedtuple says itself which of its fields are what
    if named or not isinstance(first, Tensor) or first.ndim == 0 or len(tensors) == 1:
        return first
    kind, shapes = type(batch).__name__, [tuple(tensor.shape) for tensor in tensors]
    if len(tensors) == len(batch) and _look_like_samples(tensors):
        raise BatchError(
            f"The batch is a {kind} of {len(tensors)} tensors, all of shape {shapes[0]}: samples, or (inputs, labels, "
            "...)? For a batch of samples pass torch.stack(batch), for inputs with labels the inputs alone, batch[0]."
        )
    if not _are_labels(first, tensors[1:]):
        raise BatchError(
            f"The batch is a {kind} with tensors of shapes {shapes}. It is read as (inputs, labels, ...), and each of "
            "these must have one row a sample. For a batch of samples pass torch.stack(batch) (of different lengths: "
            "torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)), for one sample x.unsqueeze(0), and for inputs "
            "beside tensors that are no labels the inputs alone, batch[0]."
        )
    return first


def _look_like_samples(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors are as alike as samples in a list are, and more than inputs with labels of their shape can be.

    Two are inputs and a target of the same shape, as an autoencoder has it. Tables (B, D) may have weights or masks of
    their own shape as well; images and single rows have none that is of the same dtype too.
    """
    first = tensors[0]
    alike = all(tensor.shape == first.shape and tensor.dtype == first.dtype for tensor in tensors[1:])
    return alike and len(tensors) > (1 + MOST_LABELS if first.ndim == 2 else 2)


def _are_labels(inputs: Tensor, others: Sequence[Tensor]) -> bool:
    """Whether other tensors have as many rows as ``inputs``; single numbers may be beside those that have."""
    rows = [other.size(0) for other in others if other.ndim > 0]
    return all(count == inputs.size(0) for count in rows) if rows else inputs.size(0) == 1
