"""Location of the data sets: an explicit folder, or the one in the environment variable ``REGTTA_DATA``."""

import os
from pathlib import Path

from regtta.errors import MissingFileError
from regtta.experiments.datasets.catalogue import DATASETS, missing

VARIABLE = "REGTTA_DATA"


def data_folder(given: str | Path | None = None) -> Path:
    """Return the folder of the data sets: ``given``, or the value of ``REGTTA_DATA``."""
    named = given or os.environ.get(VARIABLE)
    if not named:
        raise MissingFileError(f"No folder of data sets was given. Pass one, or set {VARIABLE} to it.")
    folder = Path(named)
    if not folder.is_dir():
        raise MissingFileError(f"There is no folder {folder} of data sets. Create it, or pass another.")
    return folder


def find_file(folder: Path, name: str, candidates: tuple[str, ...] = ()) -> Path:
    """Return the first existing file of a data set; raise an error that says how to get it if there is none.

    Args:
        folder: folder of the data sets.
        name: name of the data set in ``DATASETS``.
        candidates: paths inside ``folder``, the recommended one first; the data set's places by default.
    """
    candidates = candidates or DATASETS[name].places
    for candidate in candidates:
        if (folder / candidate).is_file():
            return folder / candidate
    raise missing(name, folder, folder / candidates[0])


def find_place(folder: Path, name: str) -> Path:
    """Return the first of a data set's places that exists in ``folder``, a file or a folder; raise if there is none."""
    places = DATASETS[name].places
    for place in places:
        if (folder / place).exists():
            return folder / place
    raise missing(name, folder, folder / places[0])
