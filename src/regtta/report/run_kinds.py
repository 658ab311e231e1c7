"""Detection of the kind of run at a path, and construction of its page."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from regtta.errors import InvalidFileError, MissingFileError, OptionError
from regtta.persistence import MAX_JSON_BYTES, parse_json, read_bounded
from regtta.report.adaptation import build_adaptation_page
from regtta.report.content import Page
from regtta.report.recorder import ADAPTATION

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunKind:
    """A kind of run that ``regtta report`` renders.

    Packages add kinds through the entry-point group ``regtta.reports``.

    Attributes:
        name: the command that writes such runs, without ``regtta``.
        output: the files or folders it writes, for error messages.
        matches: returns True if the existing path is a run of this kind.
        page: returns the page of runs of this kind, given their paths and the command that reproduces the page.
    """

    name: str
    output: str
    matches: Callable[[Path], bool]
    page: Callable[[Sequence[Path], str], Page]


def build_page(paths: Sequence[Path], command: str) -> Page:
    """Return the page of runs of one kind.

    Args:
        paths: records of ``regtta adapt``, or the output of another command with a :class:`RunKind`.
        command: shell command that reproduces the page.
    """
    kinds = {path: detect_run_kind(path) for path in paths}
    if len({kind.name for kind in kinds.values()}) != 1:
        found = ", ".join(f"{path} ({kind.name})" for path, kind in kinds.items()) or "nothing"
        raise OptionError(f"Expected runs of one kind for one report, found {found}. Write one report per kind.")
    try:
        return next(iter(kinds.values())).page(paths, command)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        names = ", ".join(map(str, paths))
        raise InvalidFileError(
            f"{names} is damaged or was written by another version ({type(error).__name__}: {error}). Repeat the run."
        ) from error


def detect_run_kind(path: Path) -> RunKind:
    """Return the kind of run at ``path``; raise an error that names the expected files if it is none."""
    kinds = [ADAPT_RUN, *_installed_kinds()]
    expected = ", or ".join(kind.output for kind in kinds)
    if not path.exists():
        raise MissingFileError(f"There is no file or folder {path}. Pass {expected}.")
    for kind in kinds:
        if kind.matches(path):
            return kind
    raise InvalidFileError(f"{path} is not a recorded run. Expected {expected}.")


def _installed_kinds() -> Iterator[RunKind]:
    """Yield the kinds of installed packages; one that cannot be loaded is reported and skipped."""
    for entry in entry_points(group="regtta.reports"):
        try:
            found = entry.load()
            if not isinstance(found, RunKind):
                raise TypeError(f"expected a RunKind, found {found!r}")
        except Exception as error:  # whatever a package raises, the other kinds must work
            logger.warning("The reports of %s cannot be loaded (%s: %s).", entry.value, type(error).__name__, error)
        else:
            yield found


def read_record(path: Path) -> dict[str, Any]:
    """Read a record of ``regtta adapt``; raise InvalidFileError if the file is not one."""
    raw = read_bounded(path, MAX_JSON_BYTES)
    try:
        content = parse_json(raw.decode("utf-8"))
    except ValueError as error:
        raise InvalidFileError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict) or content.get("format") != ADAPTATION:
        raise InvalidFileError(f"{path} is not a record of regtta adapt. Write one with regtta adapt --record {path}.")
    return content


ADAPT_RUN = RunKind(
    name="adapt",
    output="a .json file of regtta adapt --record",
    matches=lambda path: path.is_file() and path.suffix == ".json",
    page=lambda paths, command: build_adaptation_page([read_record(path) for path in paths], command),
)
