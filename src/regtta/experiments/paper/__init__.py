"""Tables of the paper as data.

Adachi, Yamaguchi, Kumagai and Hamagami, "Test-time Adaptation for Regression by Subspace Alignment", ICLR 2025.

Numbers are stored as printed. Contradictions between them are listed as slips, to be shown as footnotes. Rows and
columns have the library's names of methods, data sets and options in addition to the paper's labels.

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
