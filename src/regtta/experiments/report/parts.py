"""The parts of the page, from the verdict down to the command that makes it again."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from regtta.experiments.report.content import Page, Section, Tone
from regtta.experiments.report.markup import each, escaped
from regtta.experiments.report.pictures import figure_of
from regtta.experiments.report.tables import table_of

# A sign and a word for each tone, so that colour is never all there is.
SIGNS: Mapping[Tone, tuple[str, str]] = MappingProxyType(
    {
        "better": ("+", "Better"),
        "worse": ("−", "Worse"),
        "undecided": ("±", "Undecided"),
        "unknown": ("?", "Unknown"),
    }
)

BAR = """<a class="skip" href="#report">Skip to the report</a>
<header class="bar"><span>regtta report</span><button type="button" id="theme" hidden></button></header>"""

# Filled and shown by the script; one for all figures.
DIALOG = """<dialog id="zoom" aria-labelledby="zoom-title">
<div class="head"><p id="zoom-title"></p><button type="button" id="zoom-close">Close</button></div>
<div class="stage" tabindex="0" role="region" aria-label="Enlarged figure"><img alt=""></div>
<p class="caption"></p>
</dialog>
<p id="status" class="unseen" role="status"></p>"""


def verdict(page: Page) -> str:
    """The card at the top: sign and word, the headline, what was run, the summary."""
    sign, word = SIGNS[page.tone]
    return (
        f'<section class="verdict {page.tone}" aria-labelledby="headline">\n'
        f'<p class="mark"><span class="sign" aria-hidden="true">{sign}</span>{word}</p>\n'
        f'<h1 id="headline">{escaped(page.headline)}</h1>\n'
        f'<p class="run">{escaped(page.title)}</p>\n{each("p", page.summary)}\n</section>'
    )


def warnings(page: Page) -> str:
    """A list of them, or nothing."""
    if not page.warnings:
        return ""
    return (
        '<section class="warnings" aria-labelledby="warnings">\n<h2 id="warnings">Read with care</h2>\n'
        f"<ul>\n{each('li', page.warnings)}\n</ul>\n</section>"
    )


def navigation(page: Page) -> str:
    """Links to all headings of the second level."""
    places = [
        *([("facts", "Set-up")] if page.facts else []),
        *((f"section-{place}", section.title) for place, section in enumerate(page.sections, 1)),
        ("again", "Make it again"),
    ]
    items = "\n".join(f'<li><a href="#{name}">{escaped(title)}</a></li>' for name, title in places)
    return f'<nav aria-label="Sections">\n<ol>\n{items}\n</ol>\n</nav>'


def facts(page: Page) -> str:
    """Names and values, or nothing."""
    if not page.facts:
        return ""
    pairs = "\n".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in page.facts)
    return f'<section aria-labelledby="facts">\n<h2 id="facts">Set-up</h2>\n<dl>\n{pairs}\n</dl>\n</section>'


def section(content: Section, place: int) -> str:
    """The ``place``-th section, from 1."""
    name = f"section-{place}"
    tables = [table_of(grid, f"{name}-table-{number}") for number, grid in enumerate(content.grids, 1)]
    figures = [figure_of(picture, f"{name}-figure-{number}") for number, picture in enumerate(content.pictures, 1)]
    parts = [f'<h2 id="{name}">{escaped(content.title)}</h2>', each("p", content.paragraphs), *tables]
    if figures:
        parts += ['<div class="figures">', *figures, "</div>"]
    return "\n".join([f'<section aria-labelledby="{name}">', *filter(None, parts), "</section>"])


def again(page: Page) -> str:
    """The command, to be copied; each word is kept whole where a line breaks."""
    words = re.sub(r"\S+", r"<span>\g<0></span>", escaped(page.command))
    return (
        '<section aria-labelledby="again">\n<h2 id="again">Make it again</h2>\n'
        f'<pre id="command"><code>{words}</code></pre>\n'
        '<button type="button" id="copy" hidden>Copy the command</button>\n</section>'
    )
