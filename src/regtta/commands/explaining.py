"""Errors out of the user's own code, told in one line."""

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import regtta
from regtta.errors import ModelError, RegttaError

_LONGEST = 400


@contextmanager
def explaining(doing: Callable[[], str], advice: str = "") -> Iterator[None]:
    """Turn whatever the user's model, factory or loader raises inside the block into one clear line.

    Args:
        doing: what was being done, asked for only once something has gone wrong.
        advice: what to do about it.

    Example:
        >>> with explaining(lambda: "The factory failed"):
        ...     raise ValueError("no such width")
        Traceback (most recent call last):
        regtta.errors.ModelError: The factory failed: ValueError: no such width.
    """
    try:
        yield
    except RegttaError:
        raise
    except Exception as error:  # the user's code may raise anything at all
        raise ModelError(f"{doing()}: {told(error)}. {advice}".strip()) from error


def told(error: BaseException) -> str:
    r"""An error's kind, its text on one line, and the last line of the user's own code it came through.

    Example:
        >>> told(ValueError("too\nmany"))
        'ValueError: too many'
    """
    text = " ".join(str(error).split()).rstrip(".")
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "…"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def _is_users(filename: str) -> bool:
    """Whether a file is neither regtta's, nor Python's, nor an installed package's."""
    if filename.startswith("<"):
        return False
    path = Path(filename)
    foreign = (Path(regtta.__file__).parent, Path(sysconfig.get_path("stdlib")))
    return "site-packages" not in path.parts and not any(path.is_relative_to(folder) for folder in foreign)
