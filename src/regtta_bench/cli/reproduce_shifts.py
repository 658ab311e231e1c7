"""``regtta reproduce shifts``: run the suite of shifts and write its summary, tables and picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regtta.cli.user_code import is_object_reference
from regtta.errors import InvalidFileError, MissingFileError, OptionError
from regtta.methods import METHODS
from regtta.persistence import atomic_write
from regtta.report.figures import save_figure
from regtta_bench.cli.bench_options import ReproduceOptions
from regtta_bench.cli.reproduce import (
    ReproduceReport,
    make_heading,
    make_plan,
    parse_method,
    parse_weights,
    prepare_results_folder,
    run_missing_runs,
)
from regtta_bench.data import DataLocation, check_available
from regtta_bench.paper import MethodConfigFactory, TableSpec, method_names
from regtta_bench.shifts import SHIFTS, Shift, select_shifts
from regtta_bench.shifts.results import SuiteScores, collect_scores
from regtta_bench.shifts.rows import make_table, parse_row, suite_rows
from regtta_bench.shifts.shift_figure import draw_gains
from regtta_bench.shifts.shift_tables import (
    make_shift_tables,
    make_summary_tables,
    render_scores_csv,
    render_summary_csv,
)
from regtta_bench.sweep.interfaces import ProgressListener
from regtta_bench.sweep.run_specs import SweepPlan, check_weights
from regtta_bench.sweep.run_sweep import RUNS_FILE
from regtta_bench.sweep.store import RunStore, compute_key
from regtta_bench.tables import render_latex, render_markdown

NAME = "shifts"
SUMMARY = "All methods on a suite of shifts of tables and images, in a development and a held-out half."
DEFAULT_SEEDS = 1
OPTIONAL_DATA = ("utkface",)  # data sets that are skipped where the user does not have them
_FIGURE_SUFFIXES = (".png", ".svg")


def list_suite() -> tuple[str, str, str]:
    """Return the name, data sets and summary of the suite, as for the list of experiments."""
    return NAME, ", ".join(dict.fromkeys(shift.data for shift in SHIFTS)), SUMMARY


def run_shifts(options: ReproduceOptions, listener: ProgressListener) -> ReproduceReport:
    """Run the missing runs of the suite, and write its tables and picture.

    Options, data and folders are validated before the first run.
    """
    if set(options.names) != {NAME}:
        raise OptionError(f"Expected {NAME} alone, found {' '.join(options.names)}. Run the other experiments apart.")
    weights = dict(parse_weights(options.weights))
    check_weights(weights)
    shifts = select_shifts(options.only)
    notes: tuple[str, ...] = ()
    if options.quick:
        shifts = _first_of_each_group(shifts)
    if not options.tables_only:
        shifts, notes = _skip_missing_data(shifts, options)
    table = make_table(shifts, suite_rows() | {text: _parse_further_row(text) for text in options.methods})
    _check_further_rows(options.methods, table)
    plan = make_plan(options, weights, seeds=DEFAULT_SEEDS)
    prepare_results_folder(options)
    if not options.tables_only:
        run_missing_runs(options, plan, {NAME: (table,)}, listener)
    records = {str(record["key"]): record for record in RunStore(options.out / RUNS_FILE)}
    try:
        scores = collect_scores(shifts, table, plan, records.values())
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidFileError(
            f"{options.out / RUNS_FILE} holds a run that is damaged, or that another version made "
            f"({type(error).__name__}: {error}). Name a new folder with --out."
        ) from error
    if not scores.shifts:
        raise OptionError(f"{options.out / RUNS_FILE} holds no run of these shifts. Run without --tables-only first.")
    return _write(options, scores, _used_records(plan, table, records), notes)


def _parse_further_row(text: str) -> MethodConfigFactory:
    """Parse a row of ``--method``: a method of regtta with the library's defaults, or one of the user."""
    name = text.partition(":")[0]
    if set(method_names(name)) <= METHODS.keys() or not is_object_reference(text):
        return parse_row(text)
    return parse_method(text)


def _check_further_rows(methods: Sequence[str], table: TableSpec) -> None:
    for row in table.rows:
        if row.name in methods and not any(row.cells):
            raise OptionError(f"--method {row.name} fits no shift: the method needs images or classes.")


def _first_of_each_group(shifts: Sequence[Shift]) -> tuple[Shift, ...]:
    """Return the first shift of each data set and kind, of tables in both halves: what a smoke run is limited to."""
    first: dict[tuple[str, str, str], Shift] = {}
    for shift in shifts:
        first.setdefault((shift.data, shift.kind, shift.half if shift.modality == "tables" else ""), shift)
    return tuple(first.values())


def _skip_missing_data(
    shifts: tuple[Shift, ...], options: ReproduceOptions
) -> tuple[tuple[Shift, ...], tuple[str, ...]]:
    """Return the shifts without those of optional data sets that are missing, with a note on each of these."""
    location = DataLocation(options.data, options.download, options.genders)
    notes = []
    for data in OPTIONAL_DATA:
        mine = [shift for shift in shifts if shift.data == data]
        if not mine or any(name == data or name.startswith(f"{data}-") for name in options.only):
            continue
        try:
            check_available(mine[0].setting.data, location)
        except MissingFileError as error:
            shifts = tuple(shift for shift in shifts if shift.data != data)
            notes.append(f"{len(mine)} shifts of {data} are skipped. {error}")
    if not shifts:
        raise MissingFileError(" ".join(notes))
    return shifts, tuple(notes)


def _used_records(
    plan: SweepPlan, table: TableSpec, records: Mapping[str, Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    keys = (compute_key(spec.to_dict()) for spec in plan.all_runs([table]))
    return [records[key] for key in keys if key in records]


def _write(
    options: ReproduceOptions, scores: SuiteScores, used: Sequence[Mapping[str, Any]], notes: tuple[str, ...]
) -> ReproduceReport:
    """Write the tables as Markdown, CSV and LaTeX, the summary as CSV, and the picture."""
    summaries = make_summary_tables(scores, smoke=options.quick)
    tables = (*summaries, *make_shift_tables(scores, smoke=options.quick))
    stem = f"{NAME}.quick" if options.quick else NAME
    contents = {
        f"{stem}.md": make_heading(NAME, used, options) + render_markdown(tables),
        f"{stem}.csv": render_scores_csv(scores, smoke=options.quick),
        f"{stem}.tex": render_latex(tables),
        f"{stem}-summary.csv": render_summary_csv(scores, smoke=options.quick),
    }
    written: list[Path] = []
    for name, text in contents.items():
        with atomic_write(options.out / name) as draft:
            draft.write_text(text, encoding="utf-8")
        written.append(options.out / name)
    figure = draw_gains(scores)
    written += [save_figure(figure, options.out / f"{stem}{ending}", overwrite=True) for ending in _FIGURE_SUFFIXES]
    return ReproduceReport(NAME, summaries, tuple(written), (*notes, *_other_shifts_note(scores)))


def _other_shifts_note(scores: SuiteScores) -> tuple[str, ...]:
    others = len(SHIFTS) - len(scores.shifts)
    return (f"{others} of {len(SHIFTS)} shifts of the suite have no runs here.",) if others else ()
