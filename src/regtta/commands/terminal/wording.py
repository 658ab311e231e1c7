"""Errors in the words of the command line.

The core speaks to programmers (``head=<name>``); whoever runs a command needs the option instead.
"""

import re

from regtta.errors import RegttaError

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

_EXTRAS = {
    "cli": ("typer", "rich", "pandas", "pyarrow", "scipy"),
    "experiments": ("sklearn", "matplotlib", "PIL", "timm", "torchvision"),
    "analysis": ("ot", "umap"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "monitor": ("river", "tensorboard"),
}


def one_line(error: RegttaError) -> str:
    r"""The message of ``error`` on one line, naming options of the command line.

    Example:
        >>> one_line(RegttaError("No head. Pass head=<name>;\nlayers here: ['fc']."))
        "No head. Pass --head NAME; layers here: ['fc']."
    """
    text = " ".join(str(error).split())
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """What to install where ``error`` is about an optional dependency, else ``None``.

    Example:
        >>> missing_extra(ModuleNotFoundError("No module named 'rich'", name="rich"))
        'rich is not installed. Install what this command needs: pip install "regtta[cli]"'
    """
    package = (error.name or "").partition(".")[0]
    for extra, packages in _EXTRAS.items():
        if package in packages:
            return f'{package} is not installed. Install what this command needs: pip install "regtta[{extra}]"'
    return None
