"""Checkpoints of a stream: written between batches, resumed exactly, without blocking predictions."""

import contextlib
import copy
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regtta.errors import (
    ExistingFileError,
    FileError,
    InvalidFileError,
    MismatchError,
    OptionError,
    RegttaError,
    StateError,
)
from regtta.options import check_bool, check_positive_int
from regtta.persistence.state_files import read_state, write_state
from regtta.persistence.state_validation import require_count, require_mapping, state_error
from regtta.types import Callback, Step

if TYPE_CHECKING:
    from regtta.adapter import Adapter
    from regtta.models import Inputs

logger = logging.getLogger(__name__)


class _Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


class Checkpoint(Callback):
    """Writes the state of a stream to one file every few batches: ``Adapter(..., callbacks=[Checkpoint(path)])``.

    The file holds the adapter and all callbacks with a state, such as a monitor, at the same batch. One file belongs
    to one stream.

    Args:
        path: path of the file, ``.safetensors``.
        every: number of batches between two writes.
        overwrite: start a new stream even if the file exists, instead of :meth:`resume`.

    Attributes:
        adapter: the adapter; ``None`` before the checkpoint is passed to one.
        batches: number of batches of the stream so far.
        failures: number of failed writes.
        last_error: reason of the last failed write and what to do; ``None`` if the last write succeeded.

    Example:
        >>> import tempfile, torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        >>> file, stream = Path(tempfile.mkdtemp()) / "stream.safetensors", torch.randn(10, 16, 3)
        >>> first = regtta.Adapter(model, regtta.BNAdapt(), head="2", callbacks=[Checkpoint(file, every=4)])
        >>> steps = [first.adapt(x) for x in stream]
        >>> checkpoint = Checkpoint(file, every=4)
        >>> second = regtta.Adapter(model, regtta.BNAdapt(), head="2", callbacks=[checkpoint])
        >>> start = checkpoint.resume()
        >>> start, torch.equal(second.adapt(stream[start]).predictions, steps[start].predictions)
        (8, True)
    """

    def __init__(self, path: str | Path, every: int = 50, *, overwrite: bool = False) -> None:
        check_positive_int("every", every)
        check_bool("overwrite", overwrite)
        self.path = Path(path)
        self.every = every
        self.batches = 0
        self.failures = 0
        self.last_error: str | None = None
        self.adapter: Adapter | None = None
        self._last_attempt = 0  # number of batches at the last write
        self._logged: set[str] = set()
        self._may_write = overwrite

    def on_start(self, adapter: "Adapter") -> None:
        """Attach to the adapter."""
        if self.adapter is not None and self.adapter is not adapter:
            raise OptionError("This checkpoint already belongs to another adapter. Create one per adapter and file.")
        _check_names(adapter)
        self.adapter = adapter

    def before_step(self, adapter: "Adapter", inputs: "Inputs") -> None:  # noqa: ARG002 - attached by on_start
        """Write a checkpoint if one is due.

        Writing happens before a batch, so that a file counts only batches whose predictions the caller has received. A
        write that fails is logged and does not stop the stream.
        """
        self._check_not_existing()
        if self.batches != self._last_attempt and self.batches % self.every == 0:
            self._try_save()

    def on_step(self, adapter: "Adapter", step: Step) -> None:  # noqa: ARG002 - counts only
        """Count the batch."""
        self.batches += 1

    def on_end(self, adapter: "Adapter") -> None:  # noqa: ARG002 - attached by on_start
        """Write a checkpoint at the end of the stream, so that it can be continued."""
        if self._may_write and self.batches != self._last_attempt:
            self._try_save()

    def resume(self) -> int:
        """Restore adapter and callbacks from the file, and return the number of batches done; 0 without a file.

        A file that is damaged, or belongs to another model, method or guards, raises an error: a stream is never
        started anew silently.
        """
        with self._attached().paused():
            self._may_write = True
            if not self._exists():
                return 0
            try:
                self._load(read_state(self.path))
            except FileError as error:
                raise type(error)(
                    f"{error} The stream cannot be resumed: restore the file from a backup, or remove {self.path} to "
                    "start a new stream."
                ) from error
            return self.batches

    def save(self) -> None:
        """Write now; raise an error if that is not possible."""
        with self._attached().paused():
            self._check_not_existing()
            self._save()

    def try_save(self) -> bool:
        """Write now, as between batches, and return True if it succeeded."""
        with self._attached().paused():
            return self._try_save()

    def _attached(self) -> "Adapter":
        if self.adapter is None:
            raise MismatchError("The checkpoint has no adapter. Pass it to one: Adapter(..., callbacks=[checkpoint]).")
        return self.adapter

    def _exists(self) -> bool:
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise FileError(f"{self.path} cannot be read: {error.strerror}. Let this user read it.") from error
        if self.path.is_dir():
            raise FileError(f"{self.path} is a folder. Name a file.")
        return True

    def _check_not_existing(self) -> None:
        """Raise, once and before the first batch, if the file exists: it then belongs to another stream."""
        if self._may_write:
            return
        if self._exists():
            raise ExistingFileError(
                f"{self.path} exists. Call resume() first to continue its stream, or pass overwrite=True to start a "
                "new one."
            )
        self._may_write = True

    def _load(self, state: Any) -> None:
        parts = self._parts()
        before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
        loaded: list[str] = []
        try:
            batches = require_count("batches", require_mapping("", state).get("batches"))
            for name, part in parts.items():
                if name not in state:
                    raise state_error(name, "present", None)
                loaded.append(name)
                part.load_state_dict(state[name])
        except Exception as error:  # a callback may raise anything on a state of another form
            for name in loaded:  # either all parts are at the same batch, or none has changed
                with contextlib.suppress(Exception):
                    parts[name].load_state_dict(before[name])
            if isinstance(error, RegttaError) and not isinstance(error, StateError):
                raise
            reason = str(error) if isinstance(error, StateError) else f"{type(error).__name__}: {error}"
            raise InvalidFileError(f"{self.path} holds no state of this stream ({reason.rstrip('.')}).") from error
        self.batches = self._last_attempt = batches

    def _parts(self) -> dict[str, _Stateful]:
        """Return everything with a state in the file, by its name there."""
        adapter = self._attached()
        _check_names(adapter)  # callbacks may have been added since the start
        parts: dict[str, _Stateful] = {
            callback.state_key: callback for callback in adapter.callbacks if callback.state_key is not None
        }
        return {**parts, "adapter": adapter}

    def _save(self) -> None:
        if self.path.is_dir():
            raise FileError(f"Could not write {self.path}: it is a folder. Name a file.")
        state = {name: part.state_dict() for name, part in self._parts().items()}
        write_state(self.path, {"batches": self.batches, **state}, overwrite=True)
        self.last_error = None
        self._logged.clear()

    def _try_save(self) -> bool:
        self._last_attempt = self.batches
        try:
            self._save()
        except Exception as error:  # predictions matter more than any failed write
            self.failures += 1
            known = isinstance(error, RegttaError)
            self.last_error = str(error) if known else f"Could not write {self.path}: {type(error).__name__}: {error}."
            if self.last_error not in self._logged:
                self._logged.add(self.last_error)
                logger.error("%s The stream continues, and the next write tries again.", self.last_error)
            return False
        return True


def _check_names(adapter: "Adapter") -> None:
    """Raise an OptionError if two callbacks have the same name in the checkpoint."""
    keys = [callback.state_key for callback in adapter.callbacks if callback.state_key is not None]
    if len(set(keys)) < len(keys):
        raise OptionError(f"Expected callbacks with different names in the checkpoint, found {sorted(keys)}.")
