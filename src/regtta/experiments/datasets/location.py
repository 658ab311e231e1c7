"""Where data lies: the folder given, else the one that ``REGTTA_DATA`` names."""

import os
from pathlib import Path

from regtta.errors import MissingFileError
from regtta.experiments.datasets.catalogue import DATASETS, missing

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


def find_file(folder: Path, name: str, candidates: tuple[str, ...] = ()) -> Path:
    """The first file of a data set inside ``folder``, or an error that says what to get, from where and where to.

    Args:
        folder: of the data sets.
        name: of the data set in ``DATASETS``.
        candidates: paths inside ``folder``, the one to recommend first; the data set's places by default.
    """
    candidates = candidates or DATASETS[name].places
    for candidate in candidates:
        if (folder / candidate).is_file():
            return folder / candidate
    raise missing(name, folder, folder / candidates[0])


def find_place(folder: Path, name: str) -> Path:
    """The first of a data set's places that exists inside ``folder``, be it a file or a folder."""
    places = DATASETS[name].places
    for place in places:
        if (folder / place).exists():
            return folder / place
    raise missing(name, folder, folder / places[0])
