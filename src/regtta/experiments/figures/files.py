"""Writing figures."""

from pathlib import Path

from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.files import refuse_existing, written_whole

FORMATS = (".png", ".svg", ".pdf")


def save_figure(figure: Figure, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write ``figure`` to ``path`` in one move; the ending says as what: PNG, SVG or PDF.

    Args:
        figure: what to write; ``axes.figure`` is the figure of an axes.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.
        overwrite: whether a file that is there may be replaced.

    Example:
        >>> save_figure(Figure(), "spectrum.jpg")
        Traceback (most recent call last):
        regtta.errors.OptionError: Expected a path that ends in .png, .svg or .pdf, found 'spectrum.jpg'.
    """
    kind = Path(path).suffix.lower()
    if kind not in FORMATS:
        raise OptionError(f"Expected a path that ends in .png, .svg or .pdf, found {str(path)!r}.")
    path = refuse_existing(path, overwrite=overwrite)
    with written_whole(path) as draft:
        figure.savefig(draft, format=kind.removeprefix("."))
    return path
