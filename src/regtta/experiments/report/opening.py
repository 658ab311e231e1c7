"""Detection of the kind of run at a path, and construction of its page."""

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
    """Return the page of runs of one kind.

    Args:
        paths: records of ``regtta adapt``, a folder of ``regtta demo``, or folders or tables of ``regtta reproduce``.
        command: shell command that reproduces the page.
    """
    kinds = {path: kind_of(path) for path in paths}
    if len(set(kinds.values())) != 1:
        found = ", ".join(f"{path} ({kind})" for path, kind in kinds.items()) or "nothing"
        raise OptionError(f"Expected runs of one kind for one report, found {found}. Write one report per kind.")
    try:
        return _page(next(iter(kinds.values())), paths, command)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        names = ", ".join(map(str, paths))
        raise ForeignFileError(
            f"{names} is damaged or was written by another version ({type(error).__name__}: {error}). Repeat the run."
        ) from error


def _page(kind: str, paths: Sequence[Path], command: str) -> Page:
    if kind == "adapt":
        return adaptation_page([read_record(path) for path in paths], command)
    if kind == "demo":
        if len(paths) > 1:
            raise OptionError(f"Expected one folder of regtta demo, found {len(paths)}. Write one report per folder.")
        return demonstration_page(paths[0], command)
    tables = [table for path in paths for table in (tables_of(path) if path.is_dir() else [path])]
    return reproduction_page(tables, command)


def kind_of(path: Path) -> str:
    """Return the kind of run at ``path``: ``"adapt"``, ``"demo"`` or ``"reproduce"``."""
    if not path.exists():
        raise MissingFileError(
            f"There is no file or folder {path}. Pass the output of regtta adapt --record, regtta demo or "
            "regtta reproduce."
        )
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
        f"{path} is not a recorded run. Expected a .json file of regtta adapt --record, or a folder of regtta demo or "
        "regtta reproduce."
    )


def tables_of(folder: Path) -> list[Path]:
    """Return the sorted CSV tables of ``regtta reproduce`` in ``folder``: those with a LaTeX table beside them."""
    return sorted(path for path in folder.glob("*.csv") if path.with_suffix(".tex").is_file())


def read_record(path: Path) -> dict[str, Any]:
    """Read a record of ``regtta adapt``; raise ForeignFileError if the file is not one."""
    raw = read_whole(path, MOST_JSON_BYTES)
    try:
        content = parse_json(raw.decode("utf-8"))
    except ValueError as error:
        raise ForeignFileError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict) or content.get("format") != ADAPTATION:
        raise ForeignFileError(f"{path} is not a record of regtta adapt. Write one with regtta adapt --record {path}.")
    return content
