"""Reports as self-contained HTML pages: ``content`` describes a page, ``rendering`` turns it into HTML.

The names below are imported on first access, so that a run can be recorded without the packages that draw figures.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regtta.report.content import Page, ReportCell, ReportFigure, ReportTable, Section, Tone
    from regtta.report.rendering import render_html, write_page

__all__ = ["Page", "ReportCell", "ReportFigure", "ReportTable", "Section", "Tone", "render_html", "write_page"]


def __getattr__(name: str) -> object:
    """Import a public name on first access."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "rendering" if name in ("render_html", "write_page") else "content"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
