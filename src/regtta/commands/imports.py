"""Import of Python objects named on the command line as ``package.module:name``."""

import importlib
import sys
from functools import reduce
from pathlib import Path

from regtta.commands.explaining import told
from regtta.errors import OptionError
from regtta.options import did_you_mean


def is_import_name(text: str) -> bool:
    """Return True if ``text`` has the form ``package.module:name``.

    Example:
        >>> is_import_name("models.resnet:make"), is_import_name("data/target.csv")
        (True, False)
    """
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def import_name(text: str, option: str) -> object:
    """Import the object ``package.module:name``; the working directory is searched as well.

    Args:
        text: value of the option.
        option: name of the option, such as ``--model``, for error messages.

    Example:
        >>> import_name("math:floor", "--model")(2.5)
        2
    """
    if not is_import_name(text):
        raise OptionError(f"Expected {option} to be package.module:name, found {text!r}.")
    module_name, _, name = text.partition(":")
    module = _import_module(module_name, option)
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError as error:
        public = [known for known in vars(module) if not known.startswith("_")]
        hint = did_you_mean(name, public)
        raise OptionError(f"{option} {text}: {module_name!r} has no {name!r}.{hint}") from error


def _import_module(name: str, option: str) -> object:
    # For a console script, sys.path holds the folder of the script instead of the working directory.
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise OptionError(
                f"{option}: there is no module {error.name!r} here or among the installed packages. Run "
                "regtta from the folder that contains it."
            ) from error
        raise OptionError(f"{option}: {name!r} cannot be imported: {told(error)}.") from error
    except Exception as error:  # a module may raise anything on import
        raise OptionError(f"{option}: {name!r} cannot be imported: {told(error)}.") from error
    finally:
        if added and here in sys.path:
            # The working directory comes first for the user's module only: a file such as pandas.py in it must not
            # shadow the packages that regtta imports later.
            sys.path.remove(here)
            sys.path.append(here)
