"""Archives of data sets: downloading, and reading their members within limits on size."""

import hashlib
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException, HTTPMessage
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from regtta.errors import ExistingFileError, FileError, InvalidFileError, MissingFileError
from regtta.persistence import BoundedFile, convert_errors, read_bounded

_READ_BYTES = 2**20


def read_maybe_gzipped(path: Path, max_bytes: int) -> bytes:
    """Return the content of ``path``, decompressed if its name ends in .gz; raise if it exceeds ``max_bytes`` bytes."""
    if path.suffix != ".gz":
        return read_bounded(path, max_bytes)
    pieces = []
    try:
        file = BoundedFile(path, gzipped=True, max_size=max_bytes)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    with (
        file,
        convert_errors(lambda why: InvalidFileError(f"{path} is not a complete gzip file: {why}. Download it again.")),
    ):
        while piece := file.read(_READ_BYTES):
            pieces.append(piece)
    return b"".join(pieces)


_GZIPPED = {".tar": False, ".tar.gz": True, ".tgz": True}
_END_BLOCK = bytes(tarfile.BLOCKSIZE)  # the block that ends an archive


@dataclass(frozen=True)
class Entry:
    """File of a folder or of an archive.

    Attributes:
        name: path relative to the folder's parent or inside the archive, with forward slashes.
        size: size in bytes.
        origin: description for error messages.
    """

    name: str
    size: int
    origin: str
    _content: Callable[[], bytes] = field(repr=False)

    def read(self, max_bytes: int) -> bytes:
        """Return the content; raise if it exceeds ``max_bytes``. An archive's entry must be read before the next."""
        if self.size > max_bytes:
            raise InvalidFileError(f"{self.origin} has {self.size} bytes; at most {max_bytes} are read.")
        return self._content()


def iter_entries(path: Path) -> Iterator[Entry]:
    """Yield every file of ``path``: a folder (sorted), or a .tar, .tar.gz or .tgz archive (in its order).

    An archive member with an absolute path or a path with '..', a link or a device raises an error when it is reached.
    """
    if path.is_dir():
        yield from _folder_entries(path)
        return
    gzipped = next((gzipped for suffix, gzipped in _GZIPPED.items() if path.name.endswith(suffix)), None)
    if gzipped is None:
        raise InvalidFileError(f"Expected a folder or an archive ({', '.join(_GZIPPED)}), found {path}.")
    yield from _archive_entries(path, gzipped)


def _folder_entries(folder: Path) -> Iterator[Entry]:
    with convert_errors(lambda why: FileError(f"{folder} cannot be read: {why}.")):
        inside = folder.resolve()
        for path in sorted(folder.rglob("*")):
            # A link may point outside the folder, where nothing may be read.
            if path.is_file() and path.resolve().is_relative_to(inside):
                name = path.relative_to(folder.parent).as_posix()
                size = path.stat().st_size
                yield Entry(name, size, str(path), partial(read_bounded, path, size))


class _Blocks(BoundedFile):
    """Archive file that remembers the ``last`` bytes read, since tarfile mistakes damage for the end of the archive."""

    last = b""

    def read(self, size: int = -1, /) -> bytes:
        """Read like a bounded file."""
        self.last = super().read(size)
        return self.last


def _archive_entries(path: Path, gzipped: bool) -> Iterator[Entry]:
    with (
        convert_errors(
            lambda why: InvalidFileError(f"{path} is not a complete tar archive: {why}. Download it again.")
        ),
        _Blocks(path, gzipped=gzipped) as blocks,
        tarfile.open(fileobj=blocks, mode="r:") as archive,
    ):
        before = -1
        while (member := archive.next()) is not None:
            if member.offset <= before or member.size < 0:
                raise ValueError(f"{member.name!r} points back to an earlier position")
            before = member.offset
            _reject_unsafe(path, member)
            if member.isfile():
                origin = f"{member.name} in {path}"
                yield Entry(member.name, member.size, origin, _reader(archive, blocks, member, origin))
            # tarfile would keep every member and header, without bound.
            archive.members, archive.pax_headers = [], {}  # type: ignore[attr-defined]
        if blocks.last != _END_BLOCK:
            raise ValueError("it is truncated or damaged")
        while blocks.read(blocks.max_read):
            pass  # read to the end, so that the gzip checksum is verified


def _reader(archive: tarfile.TarFile, blocks: BoundedFile, member: tarfile.TarInfo, origin: str) -> Callable[[], bytes]:
    def content() -> bytes:
        usual, blocks.max_read = blocks.max_read, max(blocks.max_read, member.size)
        with convert_errors(
            lambda why: InvalidFileError(f"{origin} cannot be read: {why}. Download the archive again.")
        ):
            file = archive.extractfile(member)
            raw = b"" if file is None else file.read()
        blocks.max_read = usual
        if len(raw) != member.size:
            raise InvalidFileError(f"{origin} is truncated. Download the archive again.")
        return raw

    return content


def _reject_unsafe(path: Path, member: tarfile.TarInfo) -> None:
    inner = PurePosixPath(member.name)
    if inner.is_absolute() or ".." in inner.parts or "\\" in member.name:
        raise InvalidFileError(f"{path} is rejected: its member {member.name!r} has a path outside the archive.")
    if not (member.isfile() or member.isdir()):
        raise InvalidFileError(f"{path} is rejected: its member {member.name!r} is a link or a device, not a file.")


SCHEME = "https"
TIMEOUT = 30.0
_DOWNLOAD_BYTES = 64 * 1024

Progress = Callable[[int, int | None], None]


def download_file(url: str, path: Path, *, sha256: str, limit: int, progress: Progress | None = None) -> Path:
    """Download ``url``, verify its checksum and move it to ``path`` atomically.

    Args:
        url: https URL; a redirect to another scheme raises an error.
        path: path of the new file, which must not exist, in an existing folder.
        sha256: expected checksum, as hexadecimal digits.
        limit: maximum size in bytes.
        progress: callback with the number of bytes so far, and the total or None if it is unknown.

    Returns:
        The path.
    """
    if path.exists():
        raise ExistingFileError(f"{path} exists. Use it as it is, or remove it first.")
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no folder {path.parent} to write {path.name} into.")
    _check_scheme(url)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as temporary:
            part = Path(temporary) / path.name
            found = _download(url, part, limit, progress)
            if found != sha256:
                raise InvalidFileError(
                    f"The file at {url} has the sha256 {found}, expected {sha256}: it is another file, or was damaged "
                    "in transit. Nothing was written. Try again, or get the file elsewhere."
                )
            part.replace(path)
    except (OSError, HTTPException, ValueError) as error:
        raise FileError(
            f"Could not fetch {url} to {path}: {error or type(error).__name__}. Nothing was written. Check the network "
            "and the URL, or get the file by other means and put it there."
        ) from error
    return path


def _download(url: str, part: Path, limit: int, progress: Progress | None) -> str:
    """Download ``url`` to ``part`` and return its sha256."""
    digest, done = hashlib.sha256(), 0
    opener = urllib.request.build_opener(_SameScheme())
    with opener.open(url, timeout=TIMEOUT) as response, part.open("wb") as file:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        while chunk := response.read(_DOWNLOAD_BYTES):
            done += len(chunk)
            if done > limit:
                raise InvalidFileError(f"Expected at most {limit} bytes from {url}, found more. Nothing was written.")
            digest.update(chunk)
            file.write(chunk)
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


class _SameScheme(urllib.request.HTTPRedirectHandler):
    """Redirect handler that rejects redirects to another scheme than https."""

    def redirect_request(  # noqa: PLR0917 - as urllib calls it
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        _check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme != SCHEME:
        raise FileError(f"Expected a URL that begins with {SCHEME}://, found {url!r}. Nothing was written.")
