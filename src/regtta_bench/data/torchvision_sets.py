"""SVHN, MNIST and CIFAR-10 in the files that torchvision knows."""

import hashlib
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from regtta.errors import FileError, InvalidFileError, OptionError
from regtta.optional_imports import import_optional
from regtta.persistence import convert_errors, read_bounded
from regtta_bench.data.catalogue import DATASETS, missing_dataset_error
from regtta_bench.data.digit_images import mnist_domain, rgb_domain
from regtta_bench.data.domains import Domain, ShiftedDataset

MAX_BATCH_BYTES = 64 * 2**20  # the published batches have 31 MB
_MAX_OPCODES = 1_000_000  # the published batches take some 60,000
_PIXELS = 3 * 32 * 32
_CLASSES = 10
_MARK = object()


@dataclass
class _Placeholder:
    """Object that the pickle would construct: the ``function``, its ``arguments`` and the ``state`` set afterwards."""

    function: object
    arguments: object = None
    state: object = None


@dataclass
class _PickleMachine:
    """Stack and memo of the pickle interpreter."""

    stack: list[Any] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)

    def pop_to_mark(self) -> list[Any]:
        """Pop the values above the last mark, and the mark."""
        position = len(self.stack) - 1
        while self.stack[position] is not _MARK:
            position -= 1
            if position < 0:
                raise ValueError("a mark is missing from the stack")
        values = self.stack[position + 1 :]
        del self.stack[position:]
        return values

    def make_tuple(self, count: int) -> None:
        """Replace the last ``count`` values by a tuple of them."""
        values = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(values)

    def push_global(self) -> None:
        """Replace module and name by a placeholder of the global."""
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(_Placeholder(f"{module} {name}"))

    def call(self) -> None:
        """Replace a function and its arguments by a placeholder of the call."""
        arguments, function = self.stack.pop(), self.stack.pop()
        self.stack.append(_Placeholder(function, arguments))

    def set_state(self) -> None:
        """Store the state in the placeholder below it."""
        state = self.stack.pop()
        self.stack[-1].state = state

    def set_items(self, values: list[Any]) -> None:
        """Add alternating keys and values to the dict on top of the stack."""
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise TypeError("it sets items of an object that is not a dict")
        target.update(zip(values[::2], values[1::2], strict=True))

    def append(self, values: list[Any]) -> None:
        """Append values to the list on top of the stack."""
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError("it appends to an object that is not a list")
        target.extend(values)

    def pair(self) -> list[Any]:
        """Pop a key and its value."""
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]


_VALUES = (
    *("BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES"),
    *("BINUNICODE", "SHORT_BINUNICODE"),
)
_OPCODES: dict[str, Callable[[_PickleMachine, Any], object]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda _m, _a: None),
    **dict.fromkeys(_VALUES, lambda m, a: m.stack.append(a)),
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "MARK": lambda m, _: m.stack.append(_MARK),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_to_mark())),
    "TUPLE1": lambda m, _: m.make_tuple(1),
    "TUPLE2": lambda m, _: m.make_tuple(2),
    "TUPLE3": lambda m, _: m.make_tuple(3),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.pop_to_mark()),
    "SETITEM": lambda m, _: m.set_items(m.pair()),
    "SETITEMS": lambda m, _: m.set_items(m.pop_to_mark()),
    "GLOBAL": lambda m, a: m.stack.append(_Placeholder(a)),
    "STACK_GLOBAL": lambda m, _: m.push_global(),
    "REDUCE": lambda m, _: m.call(),
    "BUILD": lambda m, _: m.set_state(),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda m, a: m.memory.update({a: m.stack[-1]})),
    "MEMOIZE": lambda m, _: m.memory.update({len(m.memory): m.stack[-1]}),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda m, a: m.stack.append(m.memory[a])),
}


def read_batch(path: Path, md5: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Read the images (N, 32, 32, 3) uint8 of a batch and their classes (N,) int64.

    Args:
        path: file of the batch.
        md5: expected checksum; not verified by default.
    """
    raw = read_bounded(path, MAX_BATCH_BYTES)
    if md5 is not None and hashlib.md5(raw, usedforsecurity=False).hexdigest() != md5:
        raise InvalidFileError(f"The checksum of {path} differs from that of the published file. Download it again.")
    with convert_errors(lambda why: InvalidFileError(f"{path} is not a CIFAR-10 batch: {why}. Download it again.")):
        return _batch(_content(raw))


def _content(raw: bytes) -> object:
    """Interpret the opcodes of a pickle and return the value on top of the stack."""
    machine = _PickleMachine()
    for step, (code, argument, _) in enumerate(pickletools.genops(raw)):
        if step == _MAX_OPCODES:
            raise ValueError(f"it has more than {_MAX_OPCODES} opcodes")
        if code.name not in _OPCODES:
            raise ValueError(f"the opcode {code.name} is not allowed in it")
        _OPCODES[code.name](machine, argument)
    return machine.stack.pop()


def _batch(content: object) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(content, dict):
        raise TypeError(f"expected a dict, found {type(content).__name__.lstrip('_')}")
    labels = content["labels"]
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < _CLASSES for label in labels):
        raise ValueError(f"its labels are not a list of classes from 0 to {_CLASSES - 1}")
    return _pixels(content["data"], len(labels)), np.array(labels, dtype=np.int64)


def _pixels(data: object, count: int) -> np.ndarray:
    """Return the array of a placeholder. Its bytes are a str in the published files, which Python 2 wrote."""
    if not isinstance(data, _Placeholder) or not isinstance(data.state, tuple) or len(data.state) != 5:
        raise TypeError("its data is not an array")
    _, shape, dtype, fortran, content = data.state
    raw = content.encode("latin-1") if isinstance(content, str) else content
    arguments = dtype.arguments if isinstance(dtype, _Placeholder) else None
    is_bytes = isinstance(arguments, tuple) and arguments[:1] in (("u1",), (b"u1",))
    if not is_bytes or fortran is not False or shape != (count, _PIXELS) or not isinstance(raw, bytes):
        raise ValueError(f"expected {count} rows of {_PIXELS} bytes as its data, one per label")
    return np.frombuffer(raw, dtype=np.uint8).reshape(count, 3, 32, 32).transpose(0, 2, 3, 1)


SplitName = Literal["train", "test"]


def svhn_to_mnist(folder: Path, *, download: bool = False) -> ShiftedDataset:
    """Read the shift from SVHN, with its test split held out, to MNIST's test split."""
    train, validation = (svhn(folder, split, download=download) for split in get_args(SplitName))
    return ShiftedDataset("svhn-mnist", train, validation, mnist(folder, "test", download=download))


def svhn(folder: Path, split: SplitName, *, download: bool = False) -> Domain:
    """Read house-number digits, (73257 or 26032, 3, 32, 32), from ``svhn/{split}_32x32.mat``."""
    _check_split(split)
    root = folder / "svhn"
    data = _load(
        "svhn", folder, [root / f"{split}_32x32.mat"], lambda sets: sets.SVHN(root, split, download=download), download
    )
    return rgb_domain(data.data.transpose(0, 2, 3, 1), data.labels)


def mnist(folder: Path, split: SplitName, *, download: bool = False) -> Domain:
    """Read handwritten digits, (60000 or 10000, 3, 32, 32), from ``MNIST/raw``, where torchvision puts its files."""
    _check_split(split)
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    files = [folder / "MNIST" / "raw" / f"{part}-{kind}" for part in ("train", "t10k") for kind in kinds]
    images, labels = files[:2] if split == "train" else files[2:]

    def build(sets: Any) -> Domain:
        if download:
            sets.MNIST(folder, train=split == "train", download=True)
        return mnist_domain(images, labels)

    domain: Domain = _load("mnist", folder, files, build, download)
    return domain


def cifar10(folder: Path, split: SplitName, *, download: bool = False) -> Domain:
    """Read photographs of ten classes, (50000 or 10000, 3, 32, 32), from ``cifar-10-batches-py``."""
    return rgb_domain(*cifar10_arrays(folder, split, download=download))


def cifar10_arrays(folder: Path, split: SplitName, *, download: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Read CIFAR-10 as uint8 images (N, 32, 32, 3) and int64 classes (N,)."""
    _check_split(split)
    path = folder / "cifar-10-batches-py"

    def build(sets: Any) -> tuple[np.ndarray, np.ndarray]:
        published = sets.CIFAR10.train_list if split == "train" else sets.CIFAR10.test_list
        if download and not all(sets.utils.check_integrity(path / name, md5) for name, md5 in published):
            about = sets.CIFAR10
            sets.cifar.download_and_extract_archive(about.url, folder, filename=about.filename, md5=about.tgz_md5)
        images, labels = zip(*(read_batch(path / name, md5) for name, md5 in published), strict=True)
        return np.concatenate(images), np.concatenate(labels)

    arrays: tuple[np.ndarray, np.ndarray] = _load("cifar10", folder, [path / "test_batch"], build, download)
    return arrays


def _load(name: str, folder: Path, files: list[Path], build: Callable[[Any], Any], download: bool) -> Any:
    """Return ``build(torchvision.datasets)``; turn its failures into errors that say what to do."""
    datasets = import_optional("torchvision", "bench", f"Reading {DATASETS[name].title}").datasets
    path = folder / DATASETS[name].paths[0]
    try:
        return build(datasets)
    except (RuntimeError, OSError, ValueError, TypeError, KeyError, AssertionError, FileError) as error:
        what = DATASETS[name].title
        if download:
            raise FileError(f"{what} could not be downloaded to {path}, or is damaged: {error}.") from error
        if not all(file.exists() for file in files):
            raise missing_dataset_error(name, folder, path) from error
        raise InvalidFileError(
            f"{what} in {path} is incomplete or not as published ({error}). Remove it and get it again from "
            f"{DATASETS[name].origin}."
        ) from error


def _check_split(split: str) -> None:
    if split not in get_args(SplitName):
        raise OptionError(f"Expected split to be one of {list(get_args(SplitName))}, found {split!r}.")
