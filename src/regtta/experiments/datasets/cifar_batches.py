"""CIFAR-10's batches, which are published as pickles, without ever loading a pickle.

A pickle is a program, and whoever runs one trusts its author. Here its instructions are only read: a small machine
knows the few that put values on a stack, and for a call it notes what would be called and with what. Nothing is
imported and nothing is called, so that a batch can do no more than be refused. Of what was noted, the one array that a
batch holds is told by its fields: shape, type and bytes.
"""

import hashlib
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regtta.errors import ForeignFileError
from regtta.reading import clear_errors, read_whole

MOST_BATCH_BYTES = 64 * 2**20  # the published ones have 31 MB
_MOST_STEPS = 1_000_000  # the published ones take some 60,000
_PIXELS = 3 * 32 * 32
_CLASSES = 10
_MARK = object()


@dataclass
class _Noted:
    """A thing that the pickle would have made: ``of`` what, ``given`` what, and its ``state``."""

    of: object
    given: object = None
    state: object = None


@dataclass
class _Machine:
    """The stack and the memory of a pickle's instructions."""

    stack: list[Any] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)

    def since_mark(self) -> list[Any]:
        """What lies above the last mark, which is taken off with it."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("it lacks a mark")
        values = self.stack[place + 1 :]
        del self.stack[place:]
        return values

    def tuple_of(self, count: int) -> None:
        """The last ``count`` values as a tuple."""
        values = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(values)

    def named(self) -> None:
        """A name out of two texts."""
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(_Noted(f"{module} {name}"))

    def called(self) -> None:
        """A call that is not made."""
        given, of = self.stack.pop(), self.stack.pop()
        self.stack.append(_Noted(of, given))

    def built(self) -> None:
        """A state that is not given to anything."""
        state = self.stack.pop()
        self.stack[-1].state = state

    def set_items(self, values: list[Any]) -> None:
        """Keys and values, one after another, into the dict below."""
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise TypeError("it fills something that is no dict")
        target.update(zip(values[::2], values[1::2], strict=True))

    def append(self, values: list[Any]) -> None:
        """Values to the list below."""
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError("it fills something that is no list")
        target.extend(values)

    def pair(self) -> list[Any]:
        """The last two values, taken off."""
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]


_VALUES = (
    *("BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES"),
    *("BINUNICODE", "SHORT_BINUNICODE"),
)
_STEPS: dict[str, Callable[[_Machine, Any], object]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda _m, _a: None),
    **dict.fromkeys(_VALUES, lambda m, a: m.stack.append(a)),
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "MARK": lambda m, _: m.stack.append(_MARK),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.since_mark()),
    "SETITEM": lambda m, _: m.set_items(m.pair()),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "GLOBAL": lambda m, a: m.stack.append(_Noted(a)),
    "STACK_GLOBAL": lambda m, _: m.named(),
    "REDUCE": lambda m, _: m.called(),
    "BUILD": lambda m, _: m.built(),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda m, a: m.memory.update({a: m.stack[-1]})),
    "MEMOIZE": lambda m, _: m.memory.update({len(m.memory): m.stack[-1]}),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda m, a: m.stack.append(m.memory[a])),
}


def read_batch(path: Path, md5: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The images (N, 32, 32, 3) uint8 of a batch, and their classes (N,) int64.

    Args:
        path: the file.
        md5: what its checksum must be.
    """
    raw = read_whole(path, MOST_BATCH_BYTES)
    if md5 is not None and hashlib.md5(raw, usedforsecurity=False).hexdigest() != md5:
        raise ForeignFileError(f"{path} has another checksum than the published file. Get it again.")
    with clear_errors(lambda why: ForeignFileError(f"{path} is no batch of CIFAR-10: {why}. Get it again.")):
        return _batch(_content(raw))


def _content(raw: bytes) -> object:
    """What the instructions leave on the stack."""
    machine = _Machine()
    for step, (code, argument, _) in enumerate(pickletools.genops(raw)):
        if step == _MOST_STEPS:
            raise ValueError(f"it has more than {_MOST_STEPS} instructions")
        if code.name not in _STEPS:
            raise ValueError(f"the instruction {code.name} has no place in it")
        _STEPS[code.name](machine, argument)
    return machine.stack.pop()


def _batch(content: object) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(content, dict):
        raise TypeError(f"it holds no dict but a {type(content).__name__.lstrip('_')}")
    labels = content["labels"]
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < _CLASSES for label in labels):
        raise ValueError(f"its labels are no list of classes from 0 to {_CLASSES - 1}")
    return _pixels(content["data"], len(labels)), np.array(labels, dtype=np.int64)


def _pixels(noted: object, count: int) -> np.ndarray:
    """The bytes that the array would have been made of; texts, in the published files, which Python 2 wrote."""
    if not isinstance(noted, _Noted) or not isinstance(noted.state, tuple) or len(noted.state) != 5:
        raise TypeError("its data is no array")
    _, shape, kind, fortran, data = noted.state
    raw = data.encode("latin-1") if isinstance(data, str) else data
    is_bytes = isinstance(kind, _Noted) and isinstance(kind.given, tuple) and kind.given[:1] in (("u1",), (b"u1",))
    if not is_bytes or fortran is not False or shape != (count, _PIXELS) or not isinstance(raw, bytes):
        raise ValueError(f"expected {count} rows of {_PIXELS} bytes as its data, as many as it has labels")
    return np.frombuffer(raw, dtype=np.uint8).reshape(count, 3, 32, 32).transpose(0, 2, 3, 1)
