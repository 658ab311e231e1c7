"""The files below a folder or inside a tar archive, one after another; nothing is ever unpacked or written."""

import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from regtta.errors import FileError, ForeignFileError

_Mode = Literal["r:", "r:gz"]
_MODES: dict[str, _Mode] = {".tar": "r:", ".tar.gz": "r:gz", ".tgz": "r:gz"}


@dataclass(frozen=True)
class Entry:
    """One file.

    Attributes:
        name: its path inside the folder's parent or inside the archive, with forward slashes.
        size: in bytes.
        origin: what to call it in an error.
    """

    name: str
    size: int
    origin: str
    _content: Callable[[], bytes] = field(repr=False)

    def read(self, most: int) -> bytes:
        """Its content, at most ``most`` bytes; of an archive's file only before the next one is asked for."""
        if self.size > most:
            raise ForeignFileError(f"{self.origin} has {self.size} bytes; at most {most} are read.")
        return self._content()


def entries(place: Path) -> Iterator[Entry]:
    """Every file of ``place``: a folder (sorted), or a .tar, .tar.gz or .tgz archive (in its order).

    An archive with an absolute path, a path with '..', a link or a device in it is refused when that member is met.
    """
    if place.is_dir():
        yield from _of_folder(place)
        return
    mode = next((mode for suffix, mode in _MODES.items() if place.name.endswith(suffix)), None)
    if mode is None:
        raise ForeignFileError(f"Expected a folder or an archive ({', '.join(_MODES)}), found {place}.")
    yield from _of_archive(place, mode)


def _of_folder(place: Path) -> Iterator[Entry]:
    try:
        inside = place.resolve()
        for path in sorted(place.rglob("*")):
            # A link may lead out of the folder, where nothing is to be read.
            if path.is_file() and path.resolve().is_relative_to(inside):
                name = path.relative_to(place.parent).as_posix()
                yield Entry(name, path.stat().st_size, str(path), path.read_bytes)
    except OSError as error:
        raise FileError(f"{place} cannot be read: {error}.") from error


def _of_archive(place: Path, mode: _Mode) -> Iterator[Entry]:
    try:
        with tarfile.open(place, mode) as archive:
            while (member := archive.next()) is not None:
                _refuse_unsafe(place, member)
                if member.isfile():
                    origin = f"{member.name} in {place}"
                    yield Entry(member.name, member.size, origin, _reader(archive, member, origin))
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ForeignFileError(f"{place} is no whole tar archive: {error}. Get it again.") from error


def _reader(archive: tarfile.TarFile, member: tarfile.TarInfo, origin: str) -> Callable[[], bytes]:
    def content() -> bytes:
        file = archive.extractfile(member)
        try:
            raw = b"" if file is None else file.read()
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise ForeignFileError(f"{origin} cannot be read: {error}. Get the archive again.") from error
        if len(raw) != member.size:
            raise ForeignFileError(f"{origin} is cut off. Get the archive again.")
        return raw

    return content


def _refuse_unsafe(place: Path, member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise ForeignFileError(f"{place} is refused: the path {member.name!r} in it leads out of the archive.")
    if not (member.isfile() or member.isdir()):
        raise ForeignFileError(f"{place} is refused: {member.name!r} in it is a link or a device, not a file.")
