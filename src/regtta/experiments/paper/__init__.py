"""The tables of the paper as data.

Adachi, Yamaguchi, Kumagai and Hamagami, "Test-time Adaptation for Regression by Subspace Alignment", ICLR 2025.

Numbers are kept as printed, contradictions included; those are listed as slips, so that a printed number can carry
its footnote. Rows and columns go by our names of methods, data sets and options beside the paper's own words.

Example:
    >>> found = paper_number("utkface", method="ssa", column="mean")
    >>> print(found.cell, "from", found.label)
    0.731 from tab:utkface
"""

from regtta.experiments.paper.numbers import NAMES, PaperNumber, numbers_of, paper_number, paper_numbers
from regtta.experiments.paper.reading import FILES, paper_slips, paper_table
from regtta.experiments.paper.records import PaperCell, PaperRow, PaperTable, Place, Slip, SlipPlace

LABELS: tuple[str, ...] = tuple(FILES)

__all__ = [
    "LABELS",
    "NAMES",
    "PaperCell",
    "PaperNumber",
    "PaperRow",
    "PaperTable",
    "Place",
    "Slip",
    "SlipPlace",
    "numbers_of",
    "paper_number",
    "paper_numbers",
    "paper_slips",
    "paper_table",
]
