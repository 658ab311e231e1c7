"""Reading of whole files, gzipped or not, up to a maximum size."""

from pathlib import Path

from regtta.errors import FileError, ForeignFileError
from regtta.reading import BoundedFile, clear_errors, read_whole

_PIECE = 2**20


def unpacked(path: Path, most: int) -> bytes:
    """Return the content of ``path``, decompressed if its name ends in .gz; raise if it exceeds ``most`` bytes."""
    if path.suffix != ".gz":
        return read_whole(path, most)
    pieces = []
    try:
        file = BoundedFile(path, gzipped=True, most=most)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    with (
        file,
        clear_errors(lambda why: ForeignFileError(f"{path} is not a complete gzip file: {why}. Download it again.")),
    ):
        while piece := file.read(_PIECE):
            pieces.append(piece)
    return b"".join(pieces)
