"""Parsers of values that are typed as one text, such as ``1,8,64``."""

from collections.abc import Callable
from dataclasses import dataclass

from regtta.errors import OptionError


@dataclass(frozen=True)
class Parser:
    """Marks a field that is typed as one text.

    Attributes:
        parse: converts the text to the value of the field.
    """

    parse: Callable[[str], object]


def split_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names.

    Example:
        >>> split_names("age, height")
        ('age', 'height')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def numbers(text: str) -> tuple[int, ...]:
    """Parse a comma-separated list of integers, dropping duplicates.

    Example:
        >>> numbers("1, 8")
        (1, 8)
    """
    try:
        return tuple(dict.fromkeys(int(word) for word in split_names(text)))
    except ValueError as error:
        raise OptionError(f"Expected whole numbers such as 1,8,64, found {text!r}.") from error
