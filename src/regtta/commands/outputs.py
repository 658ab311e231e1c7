"""Validation of output paths before a command starts its work."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from regtta.errors import ExistingFileError, FileError, OptionError
from regtta.files import refuse_existing


def check_outputs(outputs: Mapping[str, Path | None], *, inputs: Sequence[Path | None], force: bool) -> None:
    """Raise if an output cannot be written or would overwrite an input or an existing file.

    Args:
        outputs: paths by option; ``None`` if the option was not given.
        inputs: files that the command reads.
        force: allow existing files to be replaced.
    """
    given = {option: path for option, path in outputs.items() if path is not None}
    read = {path.resolve() for path in inputs if path is not None}
    written: dict[Path, str] = {}
    for option, path in given.items():
        if path.resolve() in read:
            raise OptionError(f"{option} {path} is also an input. Write to another path.")
        if path.resolve() in written:
            raise OptionError(f"{option} and {written[path.resolve()]} both name {path}. Use different paths.")
        if path.is_dir():
            raise OptionError(f"{option} {path} is a folder. Name a file.")
        refuse_existing(path, overwrite=force, remedy="--force")
        if not os.access(path.parent, os.W_OK):
            raise FileError(f"The folder {path.parent.resolve()} cannot be written to ({option} {path}).")
        written[path.resolve()] = option


def check_suffix(option: str, path: Path | None, endings: Sequence[str]) -> None:
    """Raise unless ``path`` is ``None`` or has one of the suffixes ``endings``."""
    if path is not None and path.suffix not in endings:
        raise OptionError(f"Expected {option} to end in {' or '.join(endings)}, found {path}.")


def check_folder(path: Path, *, force: bool) -> None:
    """Raise if ``path`` is a file, or a folder that is not empty (unless ``force``)."""
    if path.exists() and not path.is_dir():
        raise OptionError(f"{path} is a file. Name a folder that is new or empty.")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise ExistingFileError(f"{path} is not empty. Choose another folder, or pass --force.")
