"""Which of Biwi Kinect's folders shows a woman and which a man, from a JSON file of the user's."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from regtta.errors import ForeignFileError, MissingFileError, OptionError
from regtta.reading import parse_json, read_whole

GENDERS = ("female", "male")
_MOST_BYTES = 64 * 2**10
_EXAMPLE = '{"01": "female", "02": "male", ...}'


def read_genders(path: Path, subjects: Iterable[str]) -> dict[str, str]:
    """``{"01": "female", ...}`` from a JSON file, with each of the folders ``subjects`` in it."""
    if not path.exists():
        raise MissingFileError(
            f"There is no file {path}. Which folder of Biwi Kinect shows a woman and which a man is not part of the "
            f"data set: look at a frame of each, and write {_EXAMPLE} to {path}, with every folder in it."
        )
    raw = read_whole(path, _MOST_BYTES)
    try:
        content = parse_json(raw)
    except ValueError as error:
        raise ForeignFileError(f"{path} is not valid JSON: {error}. Expected {_EXAMPLE}.") from error
    return _checked(path, content, subjects)


def other(gender: str) -> str:
    """The other of the two domains."""
    if gender not in GENDERS:
        raise OptionError(f"Expected one of {list(GENDERS)} as the source, found {gender!r}.")
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
        raise ForeignFileError(f"{path} says nothing of the folders {absent}. Add them, as in {_EXAMPLE}.")
    return genders
