"""Tables of the paper as data.

Adachi, Yamaguchi, Kumagai and Hamagami, "Test-time Adaptation for Regression by Subspace Alignment", ICLR 2025.

Numbers are stored as printed. Contradictions between them are listed as slips, to be shown as footnotes. Rows and
columns have the library's names of methods, data sets and options in addition to the paper's labels.

Example:
    >>> found = paper_number("utkface", method="ssa", column="mean")
    >>> print(found.cell, "from", found.label)
    0.731 from tab:utkface
"""

from regtta_bench.paper.experiments import EXPERIMENTS, Experiment, get_experiment
from regtta_bench.paper.method_configs import (
    GUARD_PRESETS,
    GuardPreset,
    MethodConfig,
    MethodConfigFactory,
    depends_on_order,
    is_supported,
    make_method_config,
    method_names,
    with_seed,
)
from regtta_bench.paper.numbers import EXPERIMENT_NAMES, PaperNumber, paper_number, paper_numbers, table_numbers
from regtta_bench.paper.protocol import (
    NO_STEP_TAKEN,
    PROTOCOLS,
    EvaluationResult,
    Task,
    compute_scores,
    evaluate,
    find_nonfinite,
)
from regtta_bench.paper.records import Header, PaperCell, PaperRow, PaperTable, Slip, SlipLocation
from regtta_bench.paper.settings import SETTINGS, Part, Setting
from regtta_bench.paper.table_files import TABLE_LABELS, paper_slips, paper_table
from regtta_bench.paper.table_specs import SMALLER_IS_BETTER, CellSpec, RowSpec, TableSpec, restrict_table

__all__ = [
    "EXPERIMENTS",
    "EXPERIMENT_NAMES",
    "GUARD_PRESETS",
    "NO_STEP_TAKEN",
    "PROTOCOLS",
    "SETTINGS",
    "SMALLER_IS_BETTER",
    "TABLE_LABELS",
    "CellSpec",
    "EvaluationResult",
    "Experiment",
    "GuardPreset",
    "Header",
    "MethodConfig",
    "MethodConfigFactory",
    "PaperCell",
    "PaperNumber",
    "PaperRow",
    "PaperTable",
    "Part",
    "RowSpec",
    "Setting",
    "Slip",
    "SlipLocation",
    "TableSpec",
    "Task",
    "compute_scores",
    "depends_on_order",
    "evaluate",
    "find_nonfinite",
    "get_experiment",
    "is_supported",
    "make_method_config",
    "method_names",
    "paper_number",
    "paper_numbers",
    "paper_slips",
    "paper_table",
    "restrict_table",
    "table_numbers",
    "with_seed",
]
