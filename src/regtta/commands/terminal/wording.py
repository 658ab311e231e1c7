"""Translation of error messages for the command line.

Messages of the library name Python arguments (``head=<name>``); on the command line they name the option instead.
"""

import re

from regtta.errors import RegttaError
from regtta.optional_imports import extra_of, install_command

_WORDS = (
    (r"(pass download=True|call fetch_california on that folder); on the command line, --download", "pass --download"),
    (r"No folder of data sets was named\. Pass one,", "No folder of data sets was named. Pass --data DIR,"),
    (r"\ballow_mismatch=True", "--allow-mismatch"),
    (r"\bhead=<name>", "--head NAME"),
    (r"\bhead= ", "--head "),
    (r"\binputs=<key>", "--inputs KEY"),
    (r"\binputs=('[^']*')", r"--inputs \1"),
    (r"\binputs= ", "--inputs "),
    (r"(?<!--set )\bk=\"auto\"", "--set k=auto"),
    (r"(?<!--set )\bk=None\b", "--set k=none"),
    (r"regtta\.collect\(model, loader, methods=\[regtta\.method\('(\w+)'\)\]\)", r"regtta collect --method \1"),
    (r"\bregtta\.collect\(model, loader\)(\.save\(path\))?", "regtta collect"),
)


def one_line(error: RegttaError) -> str:
    r"""Return the message of ``error`` on one line, with the names of command-line options.

    Example:
        >>> one_line(RegttaError("No head. Pass head=<name>;\nlayers here: ['fc']."))
        "No head. Pass --head NAME; layers here: ['fc']."
    """
    text = " ".join(str(error).split())
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return installation advice if ``error`` is about an optional dependency, else ``None``.

    Example:
        >>> missing_extra(ModuleNotFoundError("No module named 'rich'", name="rich"))
        'rich is not installed. Install what this command needs: pip install "regtta[cli]"'
    """
    package = (error.name or "").partition(".")[0]
    extra = extra_of(package)
    if extra is None:
        return None
    return f"{package} is not installed. Install what this command needs: {install_command(extra)}"
