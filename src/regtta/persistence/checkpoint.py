"""Checkpoints of a stream: written as it goes, resumed exactly, and never in the way of its predictions."""

import contextlib
import copy
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from regtta.errors import ExistingFileError, FileError, InvalidFileError, RegttaError, StateError
from regtta.options import check_bool, check_positive_int
from regtta.persistence.state_files import read_state, write_state
from regtta.persistence.state_validation import require_count, require_mapping, state_error
from regtta.types import Step

if TYPE_CHECKING:
    from regtta.adapter import Adapter

_LOG = logging.getLogger(__name__)


class Companion(Protocol):
    """Something that follows a stream and is kept in the same file, so that both always stand at the same batch."""

    def see(self, step: Step) -> None:
        """A batch was adapted to."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, as tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""


class Watching(Protocol):
    """What adapts in an adapter's place and remembers what it saw, such as a monitor."""

    def adapt(self, x: object, targets: Tensor | None = None) -> Step:
        """The adapter's step."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, as tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""


class Checkpoints:
    """Keeps where a stream stands in one file, every so many batches.

    Threads may share it: batches are adapted to and counted one at a time, while others predict. One file belongs to
    one stream.

    Args:
        adapter: that adapts; give it batches through :meth:`adapt` alone, so that all are counted.
        path: of the file, ``.safetensors``.
        every: batches between two writes.
        companion: what else stands in the file.
        monitor: a :class:`regtta.Monitor` of this adapter, which then sees every batch and stands in the file as well.
        overwrite: begin anew over a file that exists, instead of :meth:`resume`.

    Attributes:
        batches: how many the stream has behind it.
        failures: how many writes failed.
        last_error: why the last write failed and what to do; ``None`` where it did not.

    Example:
        >>> import tempfile, torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        >>> file, stream = Path(tempfile.mkdtemp()) / "stream.safetensors", torch.randn(10, 16, 3)
        >>> first = Checkpoints(regtta.Adapter(model, regtta.BNAdapt(), head="2"), file, every=4)
        >>> steps = [first.adapt(x) for x in stream]
        >>> second = Checkpoints(regtta.Adapter(model, regtta.BNAdapt(), head="2"), file, every=4)
        >>> start = second.resume()
        >>> start, torch.equal(second.adapt(stream[start]).predictions, steps[start].predictions)
        (8, True)
    """

    def __init__(
        self,
        adapter: "Adapter",
        path: str | Path,
        every: int = 50,
        *,
        companion: Companion | None = None,
        monitor: Watching | None = None,
        overwrite: bool = False,
    ) -> None:
        check_positive_int("every", every)
        check_bool("overwrite", overwrite)
        self.adapter = adapter
        self.path = Path(path)
        self.every = every
        self.companion = companion
        self.monitor = monitor
        self.batches = 0
        self.failures = 0
        self.last_error: str | None = None
        self._last_try = 0  # after how many batches
        self._told: set[str] = set()
        self._may_write = overwrite
        self._lock = threading.Lock()

    def resume(self) -> int:
        """Go on from the file; gives how many batches are done, 0 where there is no file.

        A file that is damaged, or of another model, method or guards, is an error: nothing begins anew by itself.
        """
        with self._lock:
            self._may_write = True
            if not self._there():
                return 0
            try:
                self._load(read_state(self.path))
            except FileError as error:
                raise type(error)(
                    f"{error} The stream cannot go on from it: put back a copy, or remove {self.path} to begin anew."
                ) from error
            return self.batches

    def adapt(self, x: object, targets: Tensor | None = None) -> Step:
        """:meth:`regtta.Adapter.adapt`; before it, a write where it is time for one.

        So what a file counts as done are batches whose predictions the caller has had. A write that fails is told in
        the log and breaks nothing.
        """
        with self._lock:
            if not self._may_write:
                self._refuse_existing()
            if self.batches != self._last_try and self.batches % self.every == 0:
                self._try_save()
            step = (self.monitor or self.adapter).adapt(x, targets)
            if self.companion is not None:
                self.companion.see(step)
            self.batches += 1
            return step

    def save(self) -> None:
        """Write now; raises where that is not possible."""
        with self._lock:
            if not self._may_write:
                self._refuse_existing()
            self._save()

    def try_save(self) -> bool:
        """Write now if that is possible, as :meth:`adapt` does; says whether it was."""
        with self._lock:
            return self._try_save()

    def _there(self) -> bool:
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise FileError(f"{self.path} cannot be read: {error.strerror}. Let this user read it.") from error
        if self.path.is_dir():
            raise FileError(f"{self.path} is a folder. Name a file.")
        return True

    def _refuse_existing(self) -> None:
        """Once, before the first batch: a file that was there then is another stream's."""
        if self._there():
            raise ExistingFileError(
                f"{self.path} exists. Call resume() first to go on from it, or pass overwrite=True to begin anew."
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
                    raise state_error(name, "there", None)
                loaded.append(name)
                part.load_state_dict(state[name])
        except Exception as error:  # a companion may raise whatever a state of another form makes it raise
            for name in loaded:  # all of them stand at one batch, or none has moved
                with contextlib.suppress(Exception):
                    parts[name].load_state_dict(before[name])
            if isinstance(error, RegttaError) and not isinstance(error, StateError):
                raise
            reason = str(error) if isinstance(error, StateError) else f"{type(error).__name__}: {error}"
            raise InvalidFileError(f"{self.path} holds no state of this stream ({reason.rstrip('.')}).") from error
        self.batches = self._last_try = batches

    def _parts(self) -> "dict[str, Adapter | Companion | Watching]":
        """What stands in the file, by the name it has there."""
        parts: dict[str, Adapter | Companion | Watching] = {}
        if self.companion is not None:
            parts["companion"] = self.companion
        if self.monitor is not None:
            parts["monitor"] = self.monitor
        return {**parts, "adapter": self.adapter}

    def _save(self) -> None:
        if self.path.is_dir():
            raise FileError(f"Could not write {self.path}: it is a folder. Name a file.")
        state = {name: part.state_dict() for name, part in self._parts().items()}
        write_state(self.path, {"batches": self.batches, **state}, overwrite=True)
        self.last_error = None
        self._told.clear()

    def _try_save(self) -> bool:
        self._last_try = self.batches
        try:
            self._save()
        except Exception as error:  # whatever it is, the predictions matter more
            self.failures += 1
            known = isinstance(error, RegttaError)
            self.last_error = str(error) if known else f"Could not write {self.path}: {type(error).__name__}: {error}."
            if self.last_error not in self._told:
                self._told.add(self.last_error)
                _LOG.error("%s The stream goes on, and the next write tries again.", self.last_error)
            return False
        return True
