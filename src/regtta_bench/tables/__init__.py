"""Rendering of filled tables: text for the terminal, Markdown, LaTeX and CSV."""

from regtta_bench.tables.aggregate import FilledTable, fill_table
from regtta_bench.tables.comparison import Difference, paired_difference
from regtta_bench.tables.method_figures import MethodScores, draw_streams
from regtta_bench.tables.rendering import render_csv, render_latex, render_markdown
from regtta_bench.tables.text_tables import TextCell, TextRow, TextTable, make_text_tables

__all__ = [
    "Difference",
    "FilledTable",
    "MethodScores",
    "TextCell",
    "TextRow",
    "TextTable",
    "draw_streams",
    "fill_table",
    "make_text_tables",
    "paired_difference",
    "render_csv",
    "render_latex",
    "render_markdown",
]
