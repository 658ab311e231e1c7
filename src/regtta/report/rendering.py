"""Rendering of a report into one self-contained HTML file: styles, script and figures are embedded in it."""

import base64
import functools
import hashlib
import io
import math
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image, ImageChops

from regtta.persistence import atomic_write, check_not_existing
from regtta.report.content import Page, ReportCell, ReportTable, Tone

# A sign and a word for each tone, so that colour is never the only cue.
TONE_LABELS: Mapping[Tone, tuple[str, str]] = MappingProxyType(
    {
        "better": ("+", "Better"),
        "worse": ("−", "Worse"),
        "undecided": ("±", "Undecided"),
        "unknown": ("?", "Unknown"),
    }
)

PIXEL_RATIO = 2  # image pixels per CSS pixel, so that figures stay sharp on high-density screens
IMAGE_DPI = 96 * PIXEL_RATIO  # CSS defines 96 pixels per inch
PALETTE_COLOURS = 256  # the largest PNG palette
PALETTE_TOLERANCE = 16  # of 255: largest change of a colour channel that a palette may cause in any pixel

_PACKAGE = "regtta.report"
# Control characters and lone surrogates, which file names in a command can contain but an HTML page cannot.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# A sign, digits (optionally with thousands separators), a fraction, a power of ten.
_NUMBER = re.compile(r"\s*([+\-−]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+\-−]?\d+)?)")


class EmbeddedImage(NamedTuple):
    """A PNG as a data URI with its size in CSS pixels."""

    uri: str
    width: int
    height: int


def render_html(page: Page) -> str:
    """Render ``page`` as an HTML document; equal pages give equal text.

    Args:
        page: content of the report.

    Example:
        >>> page = Page("digits, ssa", "ssa is better: R² rises by 0.21.", "better", (), (), (), (), "regtta report")
        >>> text = render_html(page)
        >>> text.startswith("<!DOCTYPE html>"), ">ssa is better: R² rises by 0.21.</h1>" in text
        (True, True)
    """
    sign, word = TONE_LABELS[page.tone]
    template = _environment().get_template("page.html.j2")
    style, script = _asset("style.css"), _asset("behaviour.js")
    return template.render(page=page, tone_sign=sign, tone_word=word, style=style, script=script)


def write_page(page: Page, path: str | Path, *, overwrite: bool = False) -> Path:
    """Render ``page`` and write it atomically to ``path``; return the path.

    Args:
        page: content of the report.
        path: HTML file to write.
        overwrite: replace an existing file.
    """
    path = check_not_existing(path, overwrite=overwrite)
    text = render_html(page)
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")
    return path


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=replace_unprintable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        column_kinds=column_kinds,
        embed_figure=embed_figure,
        js_number=js_number,
        sha256=_sha256,
        sort_key=sort_key,
        words=_split_words,
    )
    return environment


def _asset(name: str) -> Markup:
    """Return a stylesheet or script of this package: the only text that is exempt from escaping."""
    return Markup((resources.files(_PACKAGE) / "templates" / name).read_text(encoding="utf-8"))


def replace_unprintable(value: Any) -> Any:
    r"""Replace the characters of plain text that an HTML page cannot contain; return anything else unchanged.

    Jinja applies it to every value before escaping.

    Example:
        >>> replace_unprintable("a\x00b\r\n")
        'a\ufffdb\n'
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _UNPRINTABLE.sub("\ufffd", value.replace("\r\n", "\n"))


def _split_words(text: str) -> list[str]:
    """Split ``text`` into alternating words and white space; joining them gives the printable text again."""
    return re.findall(r"\s+|\S+", replace_unprintable(text))


def _sha256(text: str) -> str:
    """Return the digest of an inline style or script as a Content-Security-Policy source expression."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def sort_key(cell: ReportCell) -> float | str | None:
    """Return the sort key of ``cell``: numbers sort before texts, and ``None`` last in either direction.

    Example:
        >>> [sort_key(ReportCell(text)) for text in ("0.93 ± 0.02", "−1,024", "diverged", "")]
        [0.93, -1024.0, 'diverged', None]
        >>> sort_key(ReportCell("large", value=3))
        3.0
    """
    value = cell.value
    if value is None:
        start = _NUMBER.match(cell.text)
        value = cell.text if start is None else float(start[1].replace("−", "-").replace(",", ""))
    if isinstance(value, str):
        return value.strip() or None
    return None if math.isnan(value) else float(value)


def js_number(value: float) -> str:
    """Format ``value`` as JavaScript's ``Number`` parses it.

    Example:
        >>> js_number(0.5), js_number(-math.inf)
        ('0.5', '-Infinity')
    """
    return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def column_kinds(table: ReportTable) -> list[str]:
    """Return ``"number"`` for each column in which most non-empty cells are numbers, else ``"text"``.

    Columns of numbers are aligned to the right.
    """
    kinds = []
    for column in range(len(table.columns)):
        shown = [row[column].text for row in table.rows if row[column].text.strip()]
        numbers = sum(_NUMBER.match(text) is not None for text in shown)
        kinds.append("number" if 2 * numbers > len(shown) else "text")
    return kinds


def encode_png(figure: Figure) -> bytes:
    """Return ``figure`` on a white background as a compact PNG.

    A palette of 256 colours takes a third of the bytes. It is used if it changes no colour channel by more than
    ``PALETTE_TOLERANCE``, which holds for lines, bars and text but not for photographs.
    """
    buffer = io.BytesIO()
    # The first drawing still changes the layout. Drawing twice makes the bytes reproducible.
    figure.savefig(io.BytesIO(), format="raw", dpi=IMAGE_DPI)
    figure.savefig(buffer, format="png", dpi=IMAGE_DPI, pil_kwargs={"compress_level": 1})
    colours = Image.open(buffer).convert("RGBA")
    full = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours).convert("RGB")
    reduced = full.quantize(PALETTE_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    largest_change = max(ImageChops.difference(full, reduced.convert("RGB")).tobytes())
    output = io.BytesIO()
    chosen = reduced if largest_change <= PALETTE_TOLERANCE else full
    chosen.save(output, "PNG", optimize=True)
    return output.getvalue()


def embed_figure(figure: Figure) -> EmbeddedImage:
    """Encode ``figure`` as a PNG data URI."""
    png = encode_png(figure)
    with Image.open(io.BytesIO(png)) as image:
        width, height = (round(pixels / PIXEL_RATIO) for pixels in image.size)
    return EmbeddedImage(f"data:image/png;base64,{base64.b64encode(png).decode()}", width, height)
