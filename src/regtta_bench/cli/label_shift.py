"""``regtta label-shift``: label-free detection of label shift, evaluated on shifts constructed from held-out data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regtta.cli.outputs import check_output_folder
from regtta.errors import MissingFileError
from regtta.options import check_choice
from regtta.persistence import atomic_write
from regtta.report.figures import save_figure
from regtta_bench.data import DataLocation, check_available, resolve_data_folder
from regtta_bench.label_shift.label_shift_findings import ALL, compute_roc_curves, roc_rows, select_cases
from regtta_bench.label_shift.label_shift_tables import make_study_tables
from regtta_bench.label_shift.label_shift_testbeds import (
    DATASET_NAMES,
    LabelShiftTestbed,
    make_california_testbed,
    make_demo_testbed,
)
from regtta_bench.label_shift.roc import Roc, roc_panels
from regtta_bench.label_shift.study import STUDY_SOURCE_MODELS, read_records, run_study, write_records
from regtta_bench.sweep.interfaces import ProgressCallback

FIGURE_QUESTIONS = ("labels moved at all", "labels, not inputs")
FIGURE_SIGNALS = ("prominence", "output mean", "output mean × √share", "conditional", "leak", "support")
BEST_SIGNALS = 2


@dataclass(frozen=True)
class LabelShiftOptions:
    """Options of ``regtta label-shift``.

    Attributes:
        name: name of the data set.
        out: output folder.
        data: folder of data sets; ``None`` for the one given by the environment.
        models: folder of source models; ``None`` for one inside ``out``.
        source_seeds: number of source models.
        quick: do a smoke run.
        tables_only: make tables and figure from existing results.
        force: write into a folder that is not empty.
    """

    name: str
    out: Path
    data: Path | None = None
    models: Path | None = None
    source_seeds: int = STUDY_SOURCE_MODELS
    quick: bool = False
    tables_only: bool = False
    force: bool = False


@dataclass(frozen=True)
class LabelShiftReport:
    """Report of ``regtta label-shift``.

    Attributes:
        cases: number of constructed shifts.
        best: signals with the largest area under the ROC curve for each question, over all source models.
        written: output files.
    """

    cases: int
    best: tuple[tuple[str, str, Roc], ...]
    written: tuple[Path, ...]


def study_label_shift(
    options: LabelShiftOptions,
    *,
    on_message: Callable[[str], None] | None = None,
    on_training: ProgressCallback | None = None,
    make_bench: Callable[[int], LabelShiftTestbed] | None = None,
) -> LabelShiftReport:
    """Run the study (unless ``tables_only``) and write its results, tables and figure.

    Args:
        options: the data set and the output folder.
        on_message: callback with a message after each source model.
        on_training: callback ``(name, epochs_done, epochs)`` for trainings.
        make_bench: creates the testbed of a seed; by default that of the data set.
    """
    check_choice("the data set", options.name, DATASET_NAMES)
    path = options.out / f"{options.name}.jsonl"
    if options.tables_only:
        if not path.is_file():
            raise MissingFileError(
                f"Expected results in {path}, but there is no such file. Run without --tables-only first."
            )
        lines = read_records(path)
    else:
        check_output_folder(options.out, force=options.force)
        if options.name == "california":
            check_available("california", DataLocation(resolve_data_folder(options.data)))
        options.out.mkdir(parents=True, exist_ok=True)
        seeds = range(options.source_seeds)
        make = make_bench or _bench_factory(options, on_training)
        lines = run_study(options.name, seeds, make, quick=options.quick, progress=on_message)
        write_records(path, lines)
    written = [path, *_write_tables(options.out, lines), *_write_figure(options.out, options.name, lines)]
    return LabelShiftReport(len(select_cases(lines)), tuple(_best(lines)), tuple(written))


def _bench_factory(
    options: LabelShiftOptions, on_training: ProgressCallback | None
) -> Callable[[int], LabelShiftTestbed]:
    if options.name == "demo":
        return lambda seed: make_demo_testbed(seed, progress=on_training)
    models = options.models or options.out / "models"
    return lambda seed: make_california_testbed(seed, data=options.data, models=models, progress=on_training)


def _write_tables(out: Path, lines: Sequence[dict[str, Any]]) -> list[Path]:
    written = []
    for name, text in make_study_tables(lines).items():
        with atomic_write(out / name) as draft:
            draft.write_text(text, encoding="utf-8")
        written.append(out / name)
    return written


def _write_figure(out: Path, name: str, lines: Sequence[dict[str, Any]]) -> list[Path]:
    cases = select_cases(lines)
    models = len({line["seed"] for line in cases})
    note = (
        f"{name}: {len(cases)} shifts constructed from held-out source samples of {models} source models. A "
        "label shift moves the mean label by 0.25 source standard deviations or more."
    )
    figure = roc_panels(
        {question: compute_roc_curves(lines, question, FIGURE_SIGNALS) for question in FIGURE_QUESTIONS}, note
    )
    return [save_figure(figure, out / f"{name}{ending}", overwrite=True) for ending in (".png", ".svg")]


def _best(lines: Sequence[dict[str, Any]]) -> list[tuple[str, str, Roc]]:
    rows = [row for row in roc_rows(lines) if row.models == ALL and row.n == 0]
    found = []
    for question in dict.fromkeys(row.question for row in rows):
        mine = sorted((row for row in rows if row.question == question), key=lambda row: -row.roc.auc)
        found += [(question, row.signal, row.roc) for row in mine[:BEST_SIGNALS]]
    return found
