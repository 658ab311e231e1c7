"""Which of Biwi Kinect's folders shows a woman and which a man, from a JSON file of the user's."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from regtta.errors import FileError, ForeignFileError, MissingFileError, OptionError

GENDERS = ("female", "male")
_MOST_BYTES = 64 * 2**10
_EXAMPLE = '{"01": "female", "02": "male", ...}'


def read_genders(path: Path, subjects: Iterable[str]) -> dict[str, str]:
    """``{"01": "female", ...}`` from a JSON file, with each of the folders ``subjects`` in it."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise MissingFileError(
            f"There is no file {path}. Which folder of Biwi Kinect shows a woman and which a man is not part of the "
            f"data set: look at a frame of each, and write {_EXAMPLE} to {path}, with every folder in it."
        ) from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    if len(raw) > _MOST_BYTES:
        raise ForeignFileError(f"{path} has more than {_MOST_BYTES} bytes. Expected JSON such as {_EXAMPLE}.")
    try:
        content: object = json.loads(raw, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(f"{path} is not valid JSON: {error}. Expected {_EXAMPLE}.") from error
    return _checked(path, content, subjects)


def other(gender: str) -> str:
    """The other of the two domains."""
    if gender not in GENDERS:
        raise OptionError(f"Expected one of {list(GENDERS)} as the source, found {gender!r}.")
    return GENDERS[1 - GENDERS.index(gender)]


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a folder is named twice")
    return content


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
