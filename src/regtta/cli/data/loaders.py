"""Data loaders in the user's Python code, or functions that return one."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from torch import Tensor, nn

from regtta.cli.data.labelled_batches import ALL_BATCHES, BatchShard, LabelledBatch, shard_loader
from regtta.cli.user_code import convert_user_errors, import_object
from regtta.errors import BatchError, OptionError
from regtta.models import BatchReader, Inputs

_END = object()


@dataclass(frozen=True, eq=False)
class Loader:
    """Data loader whose batches are ``x``, ``(x, y, ...)`` or dicts.

    Attributes:
        name: value of ``--data``.
        source: iterable, or a function without arguments that returns one and is called for each pass.
        read: turns a batch into the inputs of the model; by default of a model with one input.
        target: key of the labels in dict batches, or their position in tuples, such as ``"1"``.
    """

    name: str
    source: Iterable[object] | Callable[[], object]
    read: Callable[[object], Inputs] = field(default_factory=lambda: BatchReader(nn.Identity()))
    target: str | None = None
    rows: None = None

    @property
    def target_names(self) -> tuple[str, ...]:
        """Key of the labels, or ``target`` for a position."""
        if self.target is None:
            return ()
        return ("target",) if self.target.isdecimal() else (self.target,)

    @property
    def reiterable(self) -> bool:
        """True unless the source is an iterator, which is exhausted after one pass."""
        return not isinstance(self.source, Iterator)

    @property
    def advice(self) -> str:
        """Advice that names the loader."""
        return f"Check that {self.name} yields inputs that the model accepts."

    def batches(self, shard: BatchShard = ALL_BATCHES) -> Iterator[LabelledBatch]:
        """Iterate over the inputs and labels of the loader."""
        source = self._open_source()
        with convert_user_errors(lambda: f"--data {self.name} cannot be iterated"):
            sharded = shard_loader(source, shard)
            if sharded is None:
                indices, batches = count(), iter(source)
            else:
                indices, batches = count(shard.rank, shard.size), iter(sharded)
        for index in indices:
            with convert_user_errors(lambda index=index: f"--data {self.name} raised at its batch {index}"):  # type: ignore[misc]
                batch = next(batches, _END)
            if batch is _END:
                return
            if shard.contains(index):
                yield LabelledBatch(self.read(batch), self._targets(batch))

    def _open_source(self) -> Iterable[object]:
        source: object = self.source
        if callable(source) and not isinstance(source, Iterable):
            with convert_user_errors(lambda: f"--data {self.name} raised", "It is called without arguments."):
                source = source()
        return _check_iterable(source, self.name)

    def _targets(self, batch: object) -> Tensor | None:
        if self.target is None:
            return None
        found: object = None
        if isinstance(batch, Mapping):
            found, held = batch.get(self.target), f"a dict with the keys {list(batch)}"
        elif isinstance(batch, tuple | list):
            held = f"a {type(batch).__name__} of {len(batch)}"
            if self.target.isdecimal() and int(self.target) < len(batch):
                found = batch[int(self.target)]
        else:
            held = f"a {type(batch).__name__}"
        if isinstance(found, Tensor):
            return found
        raise BatchError(
            f"Expected a tensor of labels at --target {self.target}, found none: the batch is {held}. Name "
            "the key in dict batches, or the position in tuples (1 for the second element)."
        )


def open_loader(name: str, *, read: Callable[[object], Inputs], target: str | None) -> Loader:
    """Import the loader ``package.module:name``."""
    source = import_object(name, "--data")
    if callable(source) and not isinstance(source, Iterable):
        return Loader(name, source, read, target)
    return Loader(name, _check_iterable(source, name), read, target)


def _check_iterable(source: object, name: str) -> Iterable[object]:
    if isinstance(source, Tensor):
        raise OptionError(f"--data {name} is a single tensor. Pass batches, such as tensor.split(64).")
    if not isinstance(source, Iterable):
        raise OptionError(
            f"Expected --data {name} to be an iterable of batches or a function that returns one, found "
            f"{type(source).__name__}. Wrap a data set in torch.utils.data.DataLoader."
        )
    return source
