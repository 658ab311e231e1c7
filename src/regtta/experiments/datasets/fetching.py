"""Fetching one file from a public address: checked before it is put in place, never half there."""

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
    """Fetch ``url`` to ``path`` in one move, once its checksum is known to be right.

    Args:
        url: an https address; a redirection to anything else is refused.
        path: of the new file; nothing may be there, its folder must be.
        sha256: what the file must have, as hexadecimal digits.
        limit: the most bytes it may have.
        progress: called with the bytes so far, and those in all where the server says so.
    """
    if path.exists():
        raise ExistingFileError(f"{path} exists. Use it as it is, or remove it first.")
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no folder {path.parent} to write {path.name} into.")
    _refuse_other_scheme(url)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as aside:
            part = Path(aside) / path.name
            found = _download(url, part, limit, progress)
            if found != sha256:
                raise ForeignFileError(
                    f"What {url} gave has the sha256 {found}, expected {sha256}: it is not the file meant, or was "
                    "damaged on its way. Nothing was written. Try again, or get the file elsewhere."
                )
            part.replace(path)
    except (OSError, HTTPException, ValueError) as error:
        raise FileError(
            f"Could not fetch {url} to {path}: {error or type(error).__name__}. Nothing was written. Check the network "
            "and the address, or get the file by other means and put it there."
        ) from error
    return path


def _download(url: str, part: Path, limit: int, progress: Progress | None) -> str:
    """Write what ``url`` gives to ``part``, and say its sha256."""
    digest, done = hashlib.sha256(), 0
    opener = urllib.request.build_opener(_SameScheme())
    with opener.open(url, timeout=TIMEOUT) as answer, part.open("wb") as file:
        length = answer.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        while chunk := answer.read(_CHUNK):
            done += len(chunk)
            if done > limit:
                raise ForeignFileError(f"{url} gives more than {limit} bytes. Nothing was written.")
            digest.update(chunk)
            file.write(chunk)
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


class _SameScheme(urllib.request.HTTPRedirectHandler):
    """Follows no redirection away from https."""

    def redirect_request(  # noqa: PLR0917 - as urllib calls it
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        _refuse_other_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refuse_other_scheme(url: str) -> None:
    if urlsplit(url).scheme != SCHEME:
        raise FileError(f"Expected an address that begins with {SCHEME}://, found {url!r}. Nothing was written.")
