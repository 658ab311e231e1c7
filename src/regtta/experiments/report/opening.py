"""From the paths a user names to the page: which kind of run lies there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regtta.errors import ForeignFileError, MissingFileError, OptionError
from regtta.experiments.recorded import ADAPTATION
from regtta.experiments.report.adaptation import adaptation_page
from regtta.experiments.report.content import Page
from regtta.experiments.report.demonstration import DETAIL, RESULTS, demonstration_page
from regtta.experiments.report.reproduction import reproduction_page
from regtta.reading import MOST_JSON_BYTES, parse_json, read_whole


def page_of(paths: Sequence[Path], command: str) -> Page:
    """The page of runs of one kind: records of ``regtta adapt``, or what ``regtta demo`` or ``reproduce`` wrote.

    Args:
        paths: files or folders.
        command: that makes the page again.
    """
    kinds = {path: kind_of(path) for path in paths}
    if len(set(kinds.values())) != 1:
        found = ", ".join(f"{path} ({kind})" for path, kind in kinds.items()) or "nothing"
        raise OptionError(f"Expected runs of one kind for one report, found {found}. Make a report of each.")
    try:
        return _page(next(iter(kinds.values())), paths, command)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        names = ", ".join(map(str, paths))
        raise ForeignFileError(
            f"{names} is damaged, or another version wrote it ({type(error).__name__}: {error}). Make the run again."
        ) from error


def _page(kind: str, paths: Sequence[Path], command: str) -> Page:
    if kind == "adapt":
        return adaptation_page([read_record(path) for path in paths], command)
    if kind == "demo":
        if len(paths) > 1:
            raise OptionError(f"Expected one folder of regtta demo, found {len(paths)}. Make a report of each.")
        return demonstration_page(paths[0], command)
    tables = [table for path in paths for table in (tables_of(path) if path.is_dir() else [path])]
    return reproduction_page(tables, command)


def kind_of(path: Path) -> str:
    """``"adapt"``, ``"demo"`` or ``"reproduce"``."""
    if not path.exists():
        raise MissingFileError(f"There is no {path}. Name what regtta adapt --record, demo or reproduce has written.")
    if path.is_dir():
        if (path / RESULTS).is_file() and (path / DETAIL).is_file():
            return "demo"
        if tables_of(path):
            return "reproduce"
    elif path.suffix == ".csv":
        return "reproduce"
    elif path.suffix == ".json":
        return "adapt"
    raise ForeignFileError(
        f"{path} is no run: expected a .json of regtta adapt --record, or the folder of regtta demo or reproduce."
    )


def tables_of(folder: Path) -> list[Path]:
    """The tables that ``regtta reproduce`` wrote into a folder."""
    return sorted(path for path in folder.glob("*.csv") if path.with_suffix(".tex").is_file())


def read_record(path: Path) -> dict[str, Any]:
    """A record of ``regtta adapt``, or the error that says that it is none."""
    raw = read_whole(path, MOST_JSON_BYTES)
    try:
        content = parse_json(raw.decode("utf-8"))
    except ValueError as error:
        raise ForeignFileError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict) or content.get("format") != ADAPTATION:
        raise ForeignFileError(f"{path} is no record of regtta adapt. Make one with regtta adapt --record {path}.")
    return content
