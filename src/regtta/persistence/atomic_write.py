"""Temporary files for atomic writes: a file is written beside its target and then moved into place.

The temporary file is in a hidden folder of its own beside the target, ``.name.xxxxxxxx.draft/name``. Its writer holds
a lock on that folder, which the system releases when the process ends for any reason. A folder without a lock is left
over from a killed process and is removed by the next write of the same file.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":  # no flock on Windows: left-over folders are not removed there
    import fcntl

SUFFIX = ".draft"
_RANDOM = "[a-z0-9_]{8}"  # random part of the names that tempfile creates


@contextmanager
def draft_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path on the same file system as ``path``, which is deleted after the block unless moved.

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
        _release(handle)


def take_place(draft: Path, path: Path) -> None:
    """Flush ``draft`` to disk and move it to ``path`` atomically."""
    with draft.open("r+b") as file:
        os.fsync(file.fileno())
    draft.chmod(0o644)
    draft.replace(path)
    # The move is recorded in the folder. Not every system can sync a folder; the file is complete either way.
    with suppress(OSError):
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_left_over(path: Path) -> None:
    """Remove the drafts of ``path`` whose writers have ended; those of active writers are kept."""
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
    """Return a new draft folder and the handle that holds its lock; ``None`` where locks are not available."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=SUFFIX))
        if sys.platform == "win32":
            return folder, None
        # Another process may remove the folder before it is locked: then create a new one.
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            # On a file system without locks, no other process can remove the folder either.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, handle
            os.close(handle)


def _release(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
