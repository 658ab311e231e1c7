"""Figures as pictures inside the page: PNG, two pixels for each of CSS, of a palette where no eye can tell."""

import base64
import io

from matplotlib.figure import Figure
from PIL import Image, ImageChops

from regtta.experiments.report.content import Picture
from regtta.experiments.report.markup import escaped

SHARPNESS = 2  # pixels of the picture for one of CSS, so that screens of phones show it sharp
DPI = 96 * SHARPNESS  # CSS has 96 pixels to the inch
NARROW = 480  # CSS pixels: two pictures up to this width stand side by side
COLOURS = 256  # of a PNG's palette
TOLERANCE = 16  # of 255: how far a palette may move any channel of any pixel


def png_of(figure: Figure) -> bytes:
    """``figure`` on white as a compact PNG.

    A palette of 256 colours takes a third of the bytes. It is kept where it moves no pixel by more than ``TOLERANCE``:
    lines, bars and text pass, photographs do not.
    """
    drawn = io.BytesIO()
    # Once for nothing: the first drawing still moves the layout, and the same figure must always give the same bytes.
    figure.savefig(io.BytesIO(), format="raw", dpi=DPI)
    figure.savefig(drawn, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
    colours = Image.open(drawn).convert("RGBA")
    picture = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours).convert("RGB")
    few = picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    moved = max(ImageChops.difference(picture, few.convert("RGB")).tobytes())
    written = io.BytesIO()
    kept = few if moved <= TOLERANCE else picture
    kept.save(written, "PNG", optimize=True)
    return written.getvalue()


def figure_of(picture: Picture, name: str) -> str:
    """``picture`` with its heading, a caption, and a button to see it larger; ``name`` is an id."""
    png = png_of(picture.figure)
    with Image.open(io.BytesIO(png)) as image:
        width, height = (round(pixels / SHARPNESS) for pixels in image.size)
    title = escaped(picture.title)
    # The button is hidden until the script that answers it runs.
    return (
        f'<figure class="{"narrow" if width <= NARROW else "wide"}" aria-labelledby="{name}">\n'
        f'<h3 id="{name}">{title}</h3>\n'
        f'<div class="paper"><img src="data:image/png;base64,{base64.b64encode(png).decode()}" '
        f'alt="{escaped(picture.alt)}" width="{width}" height="{height}"></div>\n'
        f"<figcaption>{escaped(picture.caption)}</figcaption>\n"
        f'<button type="button" class="enlarge" aria-label="Enlarge: {title}" aria-haspopup="dialog" hidden>'
        f"Enlarge</button>\n</figure>"
    )
