"""Rendering of filled tables: text for the terminal, Markdown, LaTeX and CSV."""

from regtta_bench.tables.aggregate import FilledTable, fill_table
from regtta_bench.tables.comparison import CONFIDENCE_LEVEL, RESAMPLES, Difference, paired_difference
from regtta_bench.tables.method_figures import MethodScores, draw_streams
from regtta_bench.tables.rendering import CSV_COLUMNS, render_csv, render_latex, render_markdown
from regtta_bench.tables.text_tables import TextCell, TextRow, TextTable, format_difference, make_text_tables

__all__ = [
    "CONFIDENCE_LEVEL",
    "CSV_COLUMNS",
    "RESAMPLES",
    "Difference",
    "FilledTable",
    "MethodScores",
    "TextCell",
    "TextRow",
    "TextTable",
    "draw_streams",
    "fill_table",
    "format_difference",
    "make_text_tables",
    "paired_difference",
    "render_csv",
    "render_latex",
    "render_markdown",
]
