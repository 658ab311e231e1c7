"""One-line messages for exceptions raised by user code."""

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
    """Convert any exception of the user's model, factory or loader into a ModelError with a one-line message.

    Args:
        doing: returns a description of what failed; called only on failure.
        advice: what to do about it, appended to the message.

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
    except Exception as error:  # user code may raise anything
        raise ModelError(f"{doing()}: {told(error)}. {advice}".strip()) from error


def told(error: BaseException) -> str:
    r"""Return the type of an error, its message on one line and the last line of user code in its traceback.

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
    """Return True if a file belongs neither to regtta, nor to Python, nor to an installed package."""
    if filename.startswith("<"):
        return False
    path = Path(filename)
    foreign = (Path(regtta.__file__).parent, Path(sysconfig.get_path("stdlib")))
    return "site-packages" not in path.parts and not any(path.is_relative_to(folder) for folder in foreign)
