"""The files below a folder or inside a tar archive, one after another; nothing is ever unpacked or written."""

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from regtta.errors import FileError, ForeignFileError
from regtta.reading import BoundedFile, clear_errors, read_whole

_GZIPPED = {".tar": False, ".tar.gz": True, ".tgz": True}
_NO_MORE = bytes(tarfile.BLOCKSIZE)  # what an archive ends in


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
    gzipped = next((gzipped for suffix, gzipped in _GZIPPED.items() if place.name.endswith(suffix)), None)
    if gzipped is None:
        raise ForeignFileError(f"Expected a folder or an archive ({', '.join(_GZIPPED)}), found {place}.")
    yield from _of_archive(place, gzipped)


def _of_folder(place: Path) -> Iterator[Entry]:
    with clear_errors(lambda why: FileError(f"{place} cannot be read: {why}.")):
        inside = place.resolve()
        for path in sorted(place.rglob("*")):
            # A link may lead out of the folder, where nothing is to be read.
            if path.is_file() and path.resolve().is_relative_to(inside):
                name = path.relative_to(place.parent).as_posix()
                size = path.stat().st_size
                yield Entry(name, size, str(path), partial(read_whole, path, size))


class _Blocks(BoundedFile):
    """An archive's bytes, and the ``last`` of them that were asked for: tarfile takes damage for the end of it."""

    last = b""

    def read(self, size: int = -1, /) -> bytes:
        """As a bounded file does."""
        self.last = super().read(size)
        return self.last


def _of_archive(place: Path, gzipped: bool) -> Iterator[Entry]:
    with (
        clear_errors(lambda why: ForeignFileError(f"{place} is no whole tar archive: {why}. Get it again.")),
        _Blocks(place, gzipped=gzipped) as blocks,
        tarfile.open(fileobj=blocks, mode="r:") as archive,
    ):
        before = -1
        while (member := archive.next()) is not None:
            if member.offset <= before or member.size < 0:
                raise ValueError(f"{member.name!r} leads back to where the archive was read before")
            before = member.offset
            _refuse_unsafe(place, member)
            if member.isfile():
                origin = f"{member.name} in {place}"
                yield Entry(member.name, member.size, origin, _reader(archive, blocks, member, origin))
            # tarfile would keep every member and every remark, without end.
            archive.members, archive.pax_headers = [], {}  # type: ignore[attr-defined]
        if blocks.last != _NO_MORE:
            raise ValueError("it is cut off or damaged in its midst")
        while blocks.read(blocks.at_once):
            pass  # so that gzip's checksum at the very end is looked at


def _reader(archive: tarfile.TarFile, blocks: BoundedFile, member: tarfile.TarInfo, origin: str) -> Callable[[], bytes]:
    def content() -> bytes:
        usual, blocks.at_once = blocks.at_once, max(blocks.at_once, member.size)
        with clear_errors(lambda why: ForeignFileError(f"{origin} cannot be read: {why}. Get the archive again.")):
            file = archive.extractfile(member)
            raw = b"" if file is None else file.read()
        blocks.at_once = usual
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
