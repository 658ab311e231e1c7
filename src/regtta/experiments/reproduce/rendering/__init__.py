"""Rendering of filled tables: text sheets for the terminal, Markdown, LaTeX and CSV."""

from regtta.experiments.reproduce.rendering.latex import as_latex
from regtta.experiments.reproduce.rendering.markdown import as_markdown
from regtta.experiments.reproduce.rendering.sheets import Sheet, sheets_of
from regtta.experiments.reproduce.rendering.spreadsheet import as_csv

__all__ = ["Sheet", "as_csv", "as_latex", "as_markdown", "sheets_of"]
