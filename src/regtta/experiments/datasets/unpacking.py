"""Files that may be gzipped."""

import gzip
import zlib
from pathlib import Path

from regtta.errors import ForeignFileError


def unpacked(path: Path) -> bytes:
    """What ``path`` holds, unpacked where its name ends in .gz."""
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ForeignFileError(f"{path} is no whole gzip file: {error}. Get it again.") from error
