"""Rendering of filled tables: text sheets for the terminal, Markdown, LaTeX and CSV."""

from regtta_bench.tables.aggregate import Filled, fill
from regtta_bench.tables.comparison import Difference, paired_difference
from regtta_bench.tables.method_figures import MethodScores, draw_streams
from regtta_bench.tables.rendering import as_csv, as_latex, as_markdown
from regtta_bench.tables.table_view import Line, Sheet, Text, sheets_of

__all__ = [
    "Difference",
    "Filled",
    "Line",
    "MethodScores",
    "Sheet",
    "Text",
    "as_csv",
    "as_latex",
    "as_markdown",
    "draw_streams",
    "fill",
    "paired_difference",
    "sheets_of",
]
