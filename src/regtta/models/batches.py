"""Reading of batches: from what a data loader yields to the arguments of the model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regtta.errors import BatchError, OptionError
from regtta.models.forward_parameters import ForwardParameters
from regtta.models.given_options import call_given, is_key
from regtta.models.model_inputs import Inputs, ModelInputs

MAX_LABELS = 3  # label tensors beside 2-D inputs; a longer list of tensors of equal shape is a list of samples

# Entries of dict batches with these names are labels, even if the model's forward accepts them to compute a loss.
LABEL_NAMES = frozenset({"label", "labels", "target", "targets", "y"})

InputSelection = str | int | Sequence[str | int] | Callable[[Any], Any]


class BatchReader:
    """Callable that turns a batch into the inputs of a model; labels are dropped.

    Args:
        model: the model; the parameters of its ``forward`` decide which entries of a batch it takes.
        selection: the ``inputs=`` argument of the public functions. A key or an index, a list of them, or a callable
            from a batch to ``(args, kwargs)``. By default:

            * a tensor is the input;
            * a dict is passed by keyword: all entries that ``forward`` has a parameter for, except labels (``labels``,
              ``label``, ``targets``, ``target``, ``y``) that it does not require; a dict with one entry is the input;
            * a tuple or list is ``(inputs, labels, ...)`` for a model with one required parameter, and one input for
              each required parameter, followed by labels, for others; ``((input, input), labels)`` is the same;
            * a namedtuple with a field for each required parameter is passed like a dict.

    Attributes:
        takes_one: True if a tensor can be passed to the model without being read.

    Example:
        >>> import torch
        >>> class Text(nn.Module):
        ...     def forward(self, ids, mask=None): ...
        >>> read = BatchReader(Text())
        >>> read((torch.zeros(4, 7), torch.ones(4))).shape
        torch.Size([4, 7])
        >>> read({"ids": torch.zeros(4, 7), "mask": torch.ones(4, 7), "age": torch.ones(4)})
        ModelInputs(ids=(4, 7), mask=(4, 7))
    """

    def __init__(self, model: nn.Module, selection: InputSelection | None = None) -> None:
        self._selection = check_selection(selection)
        self._model = type(model).__name__
        self._forward = ForwardParameters.of(model)
        self.takes_one = isinstance(selection, str | int | None) and len(self._forward.required) < 2

    def __call__(self, batch: object) -> Inputs:
        """Return the inputs of ``batch``: a tensor ``(B, ...)``, or :class:`ModelInputs` for several."""
        if isinstance(batch, ModelInputs):
            return batch
        if callable(self._selection):
            return _called(self._selection, batch)
        found = self._default(batch) if self._selection is None else self._selected(batch, self._selection)
        return _check_tensor(found) if not isinstance(found, ModelInputs) else found

    # --- inputs= a key, an index, or several ---------------------------------------------------------

    def _selected(self, batch: object, selection: str | int | Sequence[str | int]) -> object:
        if isinstance(selection, str | int):
            found = self._entry(batch, selection)
            is_tuple = isinstance(found, tuple | list) and not isinstance(found, PackedSequence)
            return _first_of(found) if is_tuple and found else found  # type: ignore[arg-type]
        values = [self._entry(batch, key) for key in selection]
        if self._forward.accepts(selection):
            return ModelInputs((), dict(zip(map(str, selection), values, strict=True)))
        return ModelInputs(tuple(values))

    @staticmethod
    def _entry(batch: object, key: str | int) -> object:
        if isinstance(key, str) and not isinstance(batch, Mapping):
            if hasattr(batch, "_fields") and key in batch._fields:  # a namedtuple
                return getattr(batch, key)
            raise BatchError(
                f"inputs={key!r} names a key, but the batch is a {type(batch).__name__}, not a dict. "
                "Leave inputs= out: the first element is taken. inputs=<index> takes another one."
            )
        if isinstance(batch, Mapping):
            if key in batch:
                return batch[key]
            raise BatchError(
                f"The batch is a dict and there is no key {key!r}. Pass inputs=<key>; keys here: {list(batch)}."
            )
        if isinstance(batch, tuple | list) and isinstance(key, int) and -len(batch) <= key < len(batch):
            return batch[key]
        raise BatchError(
            f"inputs={key!r} is an index, but the batch is a {_describe(batch)}. Pass an index that exists, or leave "
            "inputs= out."
        )

    # --- the default -----------------------------------------------------------------------------

    def _default(self, batch: object) -> object:
        if isinstance(batch, Mapping):
            return self._from_mapping(batch)
        if isinstance(batch, tuple | list) and batch and not isinstance(batch, PackedSequence):
            return self._from_sequence(batch)
        self._check_one_is_enough()
        return batch

    def _from_mapping(self, batch: Mapping[Any, object]) -> object:
        forward = self._forward
        named = {
            str(name): value
            for name, value in batch.items()
            if name in forward.named and (name in forward.required or name not in LABEL_NAMES)
        }
        if named and not set(forward.required) - set(named):
            only = next(iter(named))
            if len(named) == 1 and forward.positional[:1] == (only,):
                return self._default_single(named[only])
            return ModelInputs((), named)
        others = [name for name in batch if name not in LABEL_NAMES]
        if len(batch) == 1 or (len(others) == 1 and len(forward.required) < 2):
            self._check_one_is_enough()
            return self._default_single(batch[others[0] if others else next(iter(batch))])
        raise BatchError(
            "The batch is a dict and no inputs=<key> was given. Pass inputs=<key>, or a list of keys; keys here: "
            f"{list(batch)}; parameters of {self._model}.forward: {list(forward.named)}."
        )

    @staticmethod
    def _default_single(value: object) -> object:
        is_tuple = isinstance(value, tuple | list) and not isinstance(value, PackedSequence)
        return _first_of(value) if is_tuple and value else value  # type: ignore[arg-type]

    def _from_sequence(self, batch: Sequence[object]) -> object:
        first, required = batch[0], self._forward.required
        fields = getattr(batch, "_fields", ())  # of a namedtuple
        if required and set(required) <= set(fields):
            return self._from_mapping(dict(zip(fields, batch, strict=True)))
        if isinstance(first, Mapping):
            return self._from_mapping(first)
        if isinstance(first, tuple | list) and not isinstance(first, PackedSequence):
            return self._from_nested(first)
        if len(required) < 2:
            self._check_unambiguous(batch)
            return _first_of(batch)
        if len(batch) < len(required):
            raise BatchError(
                f"{self._model}.forward needs {list(required)}, and the batch is a {_describe(batch)}. Let the loader "
                "yield all of them, in this order, or select them with inputs=."
            )
        return ModelInputs(tuple(batch[: len(required)]))

    def _from_nested(self, inner: Sequence[object]) -> object:
        """Return the inputs of ``(inner, labels)``."""
        if len(self._forward.required) < 2 and sum(isinstance(item, Tensor) for item in inner) > 1:
            raise BatchError(
                f"The batch begins with a {_describe(inner)}, which has two readings, because {self._model}.forward "
                f"requires {len(self._forward.required)} argument(s): its first tensor alone may be the input, or all "
                "of them. Pass inputs=<callable>: lambda batch: batch[0][0] for the first, lambda batch: (batch[0], "
                "{}) for the second, lambda batch: ((batch[0],), {}) if forward takes them as one tuple."
            )
        return self._default(inner)

    def _check_unambiguous(self, batch: Sequence[object]) -> None:
        """Raise unless the entries after the first can only be labels.

        A model such as those of transformers, all parameters of which are optional, may take several of them.
        """
        tensors = [item for item in batch if isinstance(item, Tensor)]
        if self._forward.required or len(tensors) < 2 or len(self._forward.positional) < 2:
            return
        first, second, *_ = self._forward.positional
        raise BatchError(
            f"The batch is a {_describe(batch)}, which has two readings, because no parameter of {self._model}.forward "
            f"is required: the inputs may be model({first}=batch[0]) with labels in batch[1], or "
            f"model({first}=batch[0], {second}=batch[1]). Pass inputs=0 for the first, inputs=[0, 1] for the second, "
            "or let the loader yield dicts."
        )

    def _check_one_is_enough(self) -> None:
        required = self._forward.required
        if len(required) > 1:
            raise BatchError(
                f"{self._model}.forward needs {list(required)}, and the batch is a single tensor. Let the loader yield "
                "tuples in this order or dicts with these keys, or pass inputs=<callable from a batch to (args, "
                "kwargs)>."
            )


def check_selection(selection: object) -> InputSelection | None:
    """Return a valid ``inputs=`` argument, or raise an OptionError."""
    if selection is None or callable(selection) or is_key(selection):
        return selection  # type: ignore[return-value]
    if isinstance(selection, list | tuple) and selection and all(map(is_key, selection)):
        return tuple(selection)
    raise OptionError(
        "Expected inputs to be a key, an index, a list of them, or a callable from a batch to (args, kwargs), found "
        f"{selection!r:.80}. Omit it for batches that are tensors or (inputs, labels)."
    )


def _called(function: Callable[[Any], Any], batch: object) -> Inputs:
    found = call_given("inputs", function, batch)
    if isinstance(found, Tensor | ModelInputs):
        return found if isinstance(found, ModelInputs) else _check_tensor(found)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], tuple | list):
        args, kwargs = found
        if isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in kwargs):
            return ModelInputs(tuple(args), kwargs)
    raise BatchError(
        f"Expected the callable inputs= to return (args, kwargs), a tuple and a dict with string keys, or a tensor, "
        f"found {_describe(found)}. For two tensors: lambda batch: ((batch[0], batch[1]), {{}})."
    )


def _check_tensor(batch: object) -> Tensor:
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


def _describe(batch: object) -> str:
    if isinstance(batch, tuple | list):
        kinds = [f"tensor {tuple(item.shape)}" if isinstance(item, Tensor) else type(item).__name__ for item in batch]
        return f"{type(batch).__name__} of {', '.join(kinds) or 'nothing'}"
    return type(batch).__name__
