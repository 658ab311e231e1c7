"""Imports of packages that are installed with an extra of regtta, such as ``pip install "regtta[monitor]"``."""

import importlib
import warnings
from types import ModuleType

from regtta.errors import MissingExtraError

# The modules that each extra installs.
_EXTRAS = {
    "cli": ("typer", "rich", "pandas", "pyarrow", "scipy", "PIL"),
    "report": ("matplotlib", "jinja2"),
    "analysis": ("ot", "umap"),
    "bench": ("sklearn", "timm", "torchvision"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "ray": ("ray",),
    "monitor": ("river", "tensorboard"),
}
# Distributions whose name on PyPI differs from that of their module.
_DISTRIBUTIONS = {"PIL": "pillow", "ot": "POT", "umap": "umap-learn"}


def import_optional(module: str, extra: str, purpose: str) -> ModuleType:
    """Import and return ``module``, which is installed with an extra of regtta.

    Args:
        module: full name, such as ``"river.drift"``.
        extra: name of the extra that installs it, such as ``"monitor"``.
        purpose: what requires the module; begins the error message.

    Raises:
        MissingExtraError: the module is not installed, or its import fails.

    Example:
        >>> import_optional("math", "monitor", "The detector").sqrt(4.0)
        2.0
        >>> import_optional("no_such_module", "monitor", "The detector")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        regtta.errors.MissingExtraError: The detector requires no_such_module, which is not installed: pip install ...
    """
    try:
        with warnings.catch_warnings():
            # Packages warn about optional dependencies of their own (umap: TensorFlow), which regtta does not use.
            warnings.simplefilter("ignore", ImportWarning)
            return importlib.import_module(module)
    except ImportError as error:
        package = _top_level(module)
        if isinstance(error, ModuleNotFoundError) and _top_level(error.name or "") == package:
            problem = f"{_DISTRIBUTIONS.get(package, package)}, which is not installed"
        else:  # one of its dependencies is missing, or a version does not fit
            problem = f"{module}, which cannot be imported ({error})"
        raise MissingExtraError(f"{purpose} requires {problem}: {install_command(extra)}.") from error


def find_extra(module: str) -> str | None:
    """Return the extra that installs ``module``, or ``None`` if no extra does.

    Example:
        >>> find_extra("pyarrow.parquet")
        'cli'
    """
    package = _top_level(module)
    return next((extra for extra, modules in _EXTRAS.items() if package in modules), None)


def install_command(extra: str) -> str:
    """Return the command that installs regtta with ``extra``.

    Example:
        >>> print(install_command("cli"))
        pip install "regtta[cli]"
    """
    return f'pip install "regtta[{extra}]"'


def missing_extra_message(error: ModuleNotFoundError) -> str | None:
    """Return installation advice if ``error`` is about an optional dependency, else ``None``.

    Example:
        >>> missing_extra_message(ModuleNotFoundError("No module named 'rich'", name="rich"))
        'rich is not installed. Install what this command needs: pip install "regtta[cli]"'
    """
    package = _top_level(error.name or "")
    extra = find_extra(package)
    if extra is None:
        return None
    return f"{package} is not installed. Install what this command needs: {install_command(extra)}"


def _top_level(module: str) -> str:
    return module.partition(".")[0]
