"""Tables of the paper as data.

Adachi, Yamaguchi, Kumagai and Hamagami, "Test-time Adaptation for Regression by Subspace Alignment", ICLR 2025.

Numbers are stored as printed. Contradictions between them are listed as slips, to be shown as footnotes. Rows and
columns have the library's names of methods, data sets and options in addition to the paper's labels.

Example:
    >>> found = paper_number("utkface", method="ssa", column="mean")
    >>> print(found.cell, "from", found.label)
    0.731 from tab:utkface
"""

from regtta_bench.paper.experiments import EXPERIMENTS, Experiment, experiment
from regtta_bench.paper.latex_tables import LABELS, paper_slips, paper_table
from regtta_bench.paper.method_configs import Arm, ArmMaker, arm_of, fits, follows_order, parts_of, seeded_arm
from regtta_bench.paper.numbers import NAMES, PaperNumber, numbers_of, paper_number, paper_numbers
from regtta_bench.paper.protocol import PROTOCOLS, Outcome, Task, evaluate, not_finite, scores_of
from regtta_bench.paper.records import PaperCell, PaperRow, PaperTable, Place, Slip, SlipPlace
from regtta_bench.paper.settings import SETTINGS, Part, Setting
from regtta_bench.paper.table_specs import SMALLER_IS_BETTER, Cell, Layout, restricted

__all__ = [
    "EXPERIMENTS",
    "LABELS",
    "NAMES",
    "PROTOCOLS",
    "SETTINGS",
    "SMALLER_IS_BETTER",
    "Arm",
    "ArmMaker",
    "Cell",
    "Experiment",
    "Layout",
    "Outcome",
    "PaperCell",
    "PaperNumber",
    "PaperRow",
    "PaperTable",
    "Part",
    "Place",
    "Setting",
    "Slip",
    "SlipPlace",
    "Task",
    "arm_of",
    "evaluate",
    "experiment",
    "fits",
    "follows_order",
    "not_finite",
    "numbers_of",
    "paper_number",
    "paper_numbers",
    "paper_slips",
    "paper_table",
    "parts_of",
    "restricted",
    "scores_of",
    "seeded_arm",
]
