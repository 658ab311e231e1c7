"""Genders of the subjects of Biwi Kinect, from a JSON file that the user provides."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from regtta.errors import ForeignFileError, MissingFileError, OptionError
from regtta.reading import parse_json, read_whole

GENDERS = ("female", "male")
_MOST_BYTES = 64 * 2**10
_EXAMPLE = '{"01": "female", "02": "male", ...}'


def read_genders(path: Path, subjects: Iterable[str]) -> dict[str, str]:
    """Read ``{"01": "female", ...}`` from a JSON file; raise if one of the folders ``subjects`` is missing from it."""
    if not path.exists():
        raise MissingFileError(
            f"There is no file {path}. The genders of Biwi Kinect's subjects are not part of the data set: look at a "
            f"frame of each folder, and write {_EXAMPLE} to {path}, with every folder in it."
        )
    raw = read_whole(path, _MOST_BYTES)
    try:
        content = parse_json(raw)
    except ValueError as error:
        raise ForeignFileError(f"{path} is not valid JSON: {error}. Expected {_EXAMPLE}.") from error
    return _checked(path, content, subjects)


def other(gender: str) -> str:
    """Return the other of the two genders."""
    if gender not in GENDERS:
        raise OptionError(f"Expected the source to be one of {list(GENDERS)}, found {gender!r}.")
    return GENDERS[1 - GENDERS.index(gender)]


def _checked(path: Path, content: object, subjects: Iterable[str]) -> dict[str, str]:
    if not isinstance(content, Mapping):
        raise ForeignFileError(f"Expected an object such as {_EXAMPLE} in {path}, found {type(content).__name__}.")
    genders = {}
    for folder, gender in content.items():
        if gender not in GENDERS:
            raise ForeignFileError(
                f"Expected one of {list(GENDERS)} for folder {folder!r} in {path}, found {gender!r}."
            )
        genders[str(folder)] = str(gender)
    absent = sorted(set(subjects) - set(genders))
    if absent:
        raise ForeignFileError(f"{path} lacks the folders {absent}. Add them, as in {_EXAMPLE}.")
    return genders
