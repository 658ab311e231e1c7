"""Atomic download of one file over https, with verification of its checksum."""

import hashlib
import tempfile
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from regtta.errors import ExistingFileError, FileError, ForeignFileError, MissingFileError

SCHEME = "https"
TIMEOUT = 30.0
_CHUNK = 64 * 1024

Progress = Callable[[int, int | None], None]


def fetch(url: str, path: Path, *, sha256: str, limit: int, progress: Progress | None = None) -> Path:
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
                raise ForeignFileError(
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
        while chunk := response.read(_CHUNK):
            done += len(chunk)
            if done > limit:
                raise ForeignFileError(f"Expected at most {limit} bytes from {url}, found more. Nothing was written.")
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
