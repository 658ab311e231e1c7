"""A report as one HTML page: ``content`` is what it says, ``page`` writes it."""

from regtta.experiments.report.content import Entry, Grid, Page, Picture, Section, Tone
from regtta.experiments.report.page import html_of, write_page

__all__ = ["Entry", "Grid", "Page", "Picture", "Section", "Tone", "html_of", "write_page"]
