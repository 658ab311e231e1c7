"""Where data lies: the folder given, else the one that ``REGTTA_DATA`` names."""

import os
from pathlib import Path

from regtta.errors import MissingFileError

VARIABLE = "REGTTA_DATA"


def data_folder(given: str | Path | None = None) -> Path:
    """The folder that holds the data sets, each in a folder of its own."""
    named = given or os.environ.get(VARIABLE)
    if not named:
        raise MissingFileError(f"No folder of data sets was named. Pass one, or set {VARIABLE} to it.")
    folder = Path(named)
    if not folder.is_dir():
        raise MissingFileError(f"There is no folder {folder} of data sets.")
    return folder


def find_file(folder: Path, candidates: tuple[str, ...], *, what: str, origin: str, terms: str) -> Path:
    """The first of ``candidates`` inside ``folder``, or an error that says what to get, from where and where to.

    Args:
        folder: of the data sets.
        candidates: paths inside it, the one to recommend first.
        what: the data set.
        origin: where to get it.
        terms: under which it may be used.
    """
    for name in candidates:
        if (folder / name).is_file():
            return folder / name
    raise MissingFileError(
        f"{what} is not in {folder}. Get it from {origin} (terms: {terms}) and put it at {folder / candidates[0]}."
    )
