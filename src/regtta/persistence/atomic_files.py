"""Atomic file writes: a file is written beside its target and then moved into place.

The temporary file is in a hidden folder of its own beside the target, ``.name.xxxxxxxx.draft/name``. Its writer holds
a lock on that folder, which the system releases when the process ends for any reason. A folder without a lock is left
over from a killed process and is removed by the next write of the same file. Libraries for atomic writes leave such
files behind, which is why this one is implemented here.
"""

import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regtta.errors import ExistingFileError, FileError, MissingFileError

if sys.platform != "win32":  # no flock on Windows: left-over folders are not removed there
    import fcntl

TEMPORARY_SUFFIX = ".draft"
_RANDOM = "[a-z0-9_]{8}"  # random part of the names that tempfile creates
_REMEDIES = {
    errno.ENOSPC: "Free space there, or choose a path on another disk.",
    errno.EDQUOT: "Free some of your quota there, or choose a path on another disk.",
    errno.EFBIG: "Raise the limit on the size of files, or choose a path on another disk.",
    errno.EROFS: "Make the disk writable again, or choose a path on another.",
    errno.EACCES: "Let this user write to the folder {folder}, or choose another path.",
    errno.EPERM: "Let this user write to the folder {folder}, or choose another path.",
    errno.ENOENT: "Make the folder {folder}, or choose another path.",
    errno.ENOTDIR: "Make the folder {folder}, or choose another path.",
    errno.EISDIR: "It is a folder: name a file.",
}


def check_not_existing(path: str | Path, *, overwrite: bool, remedy: str = "overwrite=True") -> Path:
    """Return ``path`` as a Path; raise if it exists and ``overwrite`` is False, or if its folder does not exist."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise ExistingFileError(f"{path} exists. Choose another path, or pass {remedy}.")
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no folder {path.parent} to write {path.name} into.")
    return path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces ``path`` atomically if the block succeeds.

    A process killed at any moment leaves either the old file or the complete new one.
    """
    try:
        with temporary_path(path) as temporary:
            yield temporary
            commit_file(temporary, path)
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> FileError:
    """Return the FileError that says why ``path`` could not be written and what to do.

    Example:
        >>> print(write_error(Path("a/b"), OSError(errno.ENOSPC, "No space left on device")))
        Could not write a/b: No space left on device. Free space there, or choose a path on another disk.
    """
    remedy = _REMEDIES.get(error.errno or 0, "Choose another path.").format(folder=path.parent)
    return FileError(f"Could not write {path}: {(error.strerror or str(error)).rstrip('.')}. {remedy}")


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path on the same file system as ``path``, which is deleted after the block unless moved.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with temporary_path(folder / "a.txt") as temporary:
        ...     _ = temporary.write_text("whole")
        ...     commit_file(temporary, folder / "a.txt")
        >>> [found.name for found in folder.iterdir()]
        ['a.txt']
    """
    remove_stale_temporary_files(path)
    folder, handle = _make_locked_folder(path)
    try:
        temporary = folder / path.name
        temporary.touch()
        yield temporary
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _release(handle)


def commit_file(temporary: Path, path: Path) -> None:
    """Flush ``temporary`` to disk and move it to ``path`` atomically."""
    with temporary.open("r+b") as file:
        os.fsync(file.fileno())
    temporary.chmod(0o644)
    temporary.replace(path)
    # The move is recorded in the folder. Not every system can sync a folder; the file is complete either way.
    with suppress(OSError):
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_stale_temporary_files(path: Path) -> None:
    """Remove the temporary files of ``path`` whose writers have ended; those of active writers are kept."""
    if sys.platform == "win32":
        return
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{_RANDOM}{re.escape(TEMPORARY_SUFFIX)}")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                _remove_if_unlocked(Path(entry.path))


def _remove_if_unlocked(folder: Path) -> None:
    with suppress(OSError):  # locked by its writer, or removed by another
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def _make_locked_folder(path: Path) -> tuple[Path, int | None]:
    """Return a new folder and the handle that holds its lock; ``None`` where locks are not available."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY_SUFFIX))
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
