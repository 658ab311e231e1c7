"""Saving figures to files."""

from pathlib import Path

from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.files import refuse_existing, written_whole

FORMATS = (".png", ".svg", ".pdf")


def save_figure(figure: Figure, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write ``figure`` atomically to ``path`` as PNG, SVG or PDF, according to the suffix.

    Args:
        figure: the figure to write; for an Axes, pass ``axes.figure``.
        path: path that ends in ``.png``, ``.svg`` or ``.pdf``.
        overwrite: replace an existing file if True.

    Returns:
        The path.

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
