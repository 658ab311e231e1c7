"""A report as one HTML file that opens anywhere, with no network: styles, script and figures are inside it."""

import base64
import hashlib
from importlib import resources
from pathlib import Path

from regtta.experiments.report import parts
from regtta.experiments.report.content import Page
from regtta.experiments.report.markup import escaped
from regtta.files import refuse_existing, written_whole


def html_of(page: Page) -> str:
    """The whole of ``page``; the same page gives the same text.

    Args:
        page: what it says.

    Example:
        >>> page = Page("digits, ssa", "ssa is better: R² rises by 0.21.", "better", (), (), (), (), "regtta report")
        >>> text = html_of(page)
        >>> text.startswith("<!DOCTYPE html>"), ">ssa is better: R² rises by 0.21.</h1>" in text
        (True, True)
    """
    style, script = _asset("style.css"), _asset("behaviour.js")
    body = [
        parts.BAR,
        '<main id="report" tabindex="-1">',
        parts.verdict(page),
        parts.warnings(page),
        '<div class="below">',
        parts.navigation(page),
        '<div class="content">',
        parts.facts(page),
        *(parts.section(section, place) for place, section in enumerate(page.sections, 1)),
        parts.again(page),
        "</div>\n</div>\n</main>",
        parts.DIALOG,
    ]
    # The script stands in the head, so that a remembered theme is there before anything is painted.
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f'<title>{escaped(page.title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n<script>{script}</script>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def write_page(page: Page, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write ``page`` to ``path`` in one move.

    Args:
        page: what it says.
        path: of the HTML file.
        overwrite: whether a file that is there may be replaced.
    """
    path = refuse_existing(path, overwrite=overwrite)
    text = html_of(page)
    with written_whole(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")
    return path


def _asset(name: str) -> str:
    return (resources.files("regtta.experiments.report") / "assets" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """No requests at all, and no style or script but those two: even text that slipped past escaping would not run."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
