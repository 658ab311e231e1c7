"""Drafts: where a file is written before it takes its place, so that a kill at any byte costs nothing.

A draft lies in a hidden folder of its own beside the file, ``.name.xxxxxxxx.draft/name``. Its writer holds a lock on
that folder, which the system lets go of when the process ends, however it ends: a folder that nobody holds is left over
from a process that was killed, and the next write of the same file removes it.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":  # which has no such locks: there, what is left over stays
    import fcntl

SUFFIX = ".draft"
_RANDOM = "[a-z0-9_]{8}"  # what tempfile puts between prefix and suffix


@contextmanager
def draft_beside(path: Path) -> Iterator[Path]:
    """A path to write to in the block, on the same file system as ``path``; gone after it unless it was moved away.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with draft_beside(folder / "a.txt") as draft:
        ...     _ = draft.write_text("whole")
        ...     take_place(draft, folder / "a.txt")
        >>> [found.name for found in folder.iterdir()]
        ['a.txt']
    """
    remove_left_over(path)
    folder, handle = _claimed_folder(path)
    try:
        draft = folder / path.name
        draft.touch()
        yield draft
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _let_go(handle)


def take_place(draft: Path, path: Path) -> None:
    """Move ``draft`` to ``path`` in one step, once its bytes are on the disk and not only on their way there."""
    with draft.open("r+b") as file:
        os.fsync(file.fileno())
    draft.chmod(0o644)
    draft.replace(path)
    # The move itself lies in the folder. Not every system can be asked to keep a folder; the file is whole either way.
    with suppress(OSError):
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_left_over(path: Path) -> None:
    """Remove the drafts of ``path`` whose writers are gone; those of others at work stay."""
    if sys.platform == "win32":
        return
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{_RANDOM}{re.escape(SUFFIX)}")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                _remove_if_left(Path(entry.path))


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):  # locked by its writer, or removed by another
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def _claimed_folder(path: Path) -> tuple[Path, int | None]:
    """A new draft folder and the handle that holds its lock; no handle where there are no locks."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=SUFFIX))
        if sys.platform == "win32":
            return folder, None
        # Another process may see the folder before it is locked, and remove it: then there must be a new one.
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            # Where a file system has no locks, nobody can take the folder for left over.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, handle
            os.close(handle)


def _let_go(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
