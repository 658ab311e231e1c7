"""``regtta label-shift``: label-free detection of label shift, evaluated on shifts constructed from held-out data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regtta.cli.outputs import check_output_folder
from regtta.errors import MissingFileError
from regtta.options import check_choice
from regtta.persistence import written_whole
from regtta.report.figures import save_figure
from regtta_bench.data import Place, check_there, data_folder
from regtta_bench.label_shift.label_shift_findings import ALL, cases_in, curves, roc_rows
from regtta_bench.label_shift.label_shift_tables import tables_of
from regtta_bench.label_shift.label_shift_testbeds import DATA, Bench, Told, california_bench, demo_bench
from regtta_bench.label_shift.roc import Roc, roc_panels
from regtta_bench.label_shift.study import SOURCES, read_lines, study_lines, write_lines

DRAWN = ("labels moved at all", "labels, not inputs")
SIGNALS_DRAWN = ("prominence", "output mean", "output mean × √share", "conditional", "leak", "support")
BEST_SHOWN = 2


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
    source_seeds: int = SOURCES
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
    told: Callable[[str], None] | None = None,
    training: Told | None = None,
    make: Callable[[int], Bench] | None = None,
) -> LabelShiftReport:
    """Run the study (unless ``tables_only``) and write its results, tables and figure.

    Args:
        options: the data set and the output folder.
        told: callback with a message after each source model.
        training: callback ``(name, epochs_done, epochs)`` for trainings.
        make: returns the bench of a seed; by default that of the data set.
    """
    check_choice("the data set", options.name, DATA)
    path = options.out / f"{options.name}.jsonl"
    if options.tables_only:
        if not path.is_file():
            raise MissingFileError(
                f"Expected results in {path}, but there is no such file. Run without --tables-only first."
            )
        lines = read_lines(path)
    else:
        check_output_folder(options.out, force=options.force)
        if options.name == "california":
            check_there("california", Place(data_folder(options.data)))
        options.out.mkdir(parents=True, exist_ok=True)
        seeds = range(options.source_seeds)
        lines = study_lines(options.name, seeds, make or _maker(options, training), quick=options.quick, told=told)
        write_lines(path, lines)
    written = [path, *_write_tables(options.out, lines), *_draw(options.out, options.name, lines)]
    return LabelShiftReport(len(cases_in(lines)), tuple(_best(lines)), tuple(written))


def _maker(options: LabelShiftOptions, training: Told | None) -> Callable[[int], Bench]:
    if options.name == "demo":
        return lambda seed: demo_bench(seed, told=training)
    models = options.models or options.out / "models"
    return lambda seed: california_bench(seed, data=options.data, models=models, told=training)


def _write_tables(out: Path, lines: Sequence[dict[str, Any]]) -> list[Path]:
    written = []
    for name, text in tables_of(lines).items():
        with written_whole(out / name) as draft:
            draft.write_text(text, encoding="utf-8")
        written.append(out / name)
    return written


def _draw(out: Path, name: str, lines: Sequence[dict[str, Any]]) -> list[Path]:
    cases = cases_in(lines)
    models = len({line["seed"] for line in cases})
    note = (
        f"{name}: {len(cases)} shifts constructed from held-out source samples of {models} source models. A "
        "label shift moves the mean label by 0.25 source standard deviations or more."
    )
    figure = roc_panels({question: curves(lines, question, SIGNALS_DRAWN) for question in DRAWN}, note)
    return [save_figure(figure, out / f"{name}{ending}", overwrite=True) for ending in (".png", ".svg")]


def _best(lines: Sequence[dict[str, Any]]) -> list[tuple[str, str, Roc]]:
    rows = [row for row in roc_rows(lines) if row.models == ALL and row.n == 0]
    found = []
    for question in dict.fromkeys(row.question for row in rows):
        mine = sorted((row for row in rows if row.question == question), key=lambda row: -row.roc.auc)
        found += [(question, row.signal, row.roc) for row in mine[:BEST_SHOWN]]
    return found
