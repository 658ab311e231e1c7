"""Reports as self-contained HTML pages: ``content`` describes a page, ``rendering`` turns it into HTML."""

from regtta.report.content import Entry, Grid, Page, Picture, Section, Tone
from regtta.report.rendering import html_of, write_page

__all__ = ["Entry", "Grid", "Page", "Picture", "Section", "Tone", "html_of", "write_page"]
