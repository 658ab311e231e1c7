"""``regtta run_stress``: benchmark of adaptation on non-i.i.d. streams, with and without guards."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regtta.errors import InvalidFileError, OptionError
from regtta.options import check_choice, check_positive_int
from regtta.persistence import atomic_write
from regtta.report.formatting import format_model_count
from regtta_bench.cli.bench_options import StressOptions
from regtta_bench.data import DataLocation
from regtta_bench.stress.findings import shown_batch_size, stream_curves
from regtta_bench.stress.results import StressResults, parse_results
from regtta_bench.stress.streams import STREAM_KINDS
from regtta_bench.stress.stress_runner import StressRunnerConfig
from regtta_bench.stress.stress_settings import ADAPTATION_METHODS, SOURCE_METHOD, STRESS_SETTINGS, StressSetting
from regtta_bench.stress.stress_specs import StressPlan, is_stress_run
from regtta_bench.stress.stress_tables import make_gate_table, make_small_batch_table, make_summary_table, table_files
from regtta_bench.sweep.executors.factory import make_executor
from regtta_bench.sweep.interfaces import ProgressListener
from regtta_bench.sweep.run_sweep import RUNS_FILE, absolute_path, check_results_folder, models_folder, run_sweep
from regtta_bench.sweep.runner import RunnerConfig
from regtta_bench.sweep.store import RunStore
from regtta_bench.tables import TextTable

DEFAULT_SOURCE_MODELS = 3
DEFAULT_BATCH_SIZES = (1, 8, 64)
QUICK_KINDS = ("iid", "sorted")
_FIGURE_SUFFIXES = (".png", ".svg")


@dataclass(frozen=True)
class StressReport:
    """Result of the benchmark.

    Attributes:
        tables: summary tables as text.
        written: output files.
        notes: remarks for the user.
    """

    tables: tuple[TextTable, ...]
    written: tuple[Path, ...]
    notes: tuple[str, ...]


def run_stress(options: StressOptions, listener: ProgressListener) -> StressReport:
    """Run the missing runs, and write tables and a figure from all runs of the setting in the folder.

    Options, data and folder are validated before the first run.
    """
    check_choice("NAME", options.name, STRESS_SETTINGS.keys())
    setting = STRESS_SETTINGS[options.name]
    plan = make_stress_plan(options, setting)
    check_results_folder(options.out, tables_only=options.tables_only)
    _check_store(options.out / RUNS_FILE)
    if not options.tables_only:
        _run_missing(options, plan, listener)
    records = list(RunStore(options.out / RUNS_FILE))
    results = parse_results(records, options.name)
    if not results.runs:
        raise OptionError(
            f"{options.out / RUNS_FILE} holds no runs of {options.name}. Run without --tables-only first."
        )
    tables = (make_summary_table(results), *make_small_batch_table(results), *make_gate_table(results))
    written = (*_write_tables(options, records), *_write_figure(options, results))
    return StressReport(tuple(table for table in tables if table.rows), written, _notes(options, plan, setting))


def make_stress_plan(options: StressOptions, setting: StressSetting) -> StressPlan:
    """Return the plan of the runs, or raise OptionError for an invalid option."""
    for option, given, known in (
        ("--kinds", options.kinds, tuple(STREAM_KINDS)),
        ("--methods", options.methods, (SOURCE_METHOD, *ADAPTATION_METHODS)),
        ("--parts", options.parts, setting.parts),
    ):
        for name in given:
            check_choice(f"each of {option}", name, known)
    for size in options.batch_sizes:
        check_positive_int("each of --batch-sizes", size)
    gate = options.gate if options.gate is not None else not options.quick
    if gate:
        check_positive_int("--gate-batches", options.gate_batches)
    return StressPlan(
        setting,
        source_models=options.source_models or (1 if options.quick else DEFAULT_SOURCE_MODELS),
        kinds=options.kinds or (QUICK_KINDS if options.quick else tuple(STREAM_KINDS)),
        method_names=tuple(name for name in ADAPTATION_METHODS if not options.methods or name in options.methods),
        parts=options.parts or (setting.parts[:1] if options.quick else setting.parts),
        batch_sizes=options.batch_sizes or (DEFAULT_BATCH_SIZES[-1:] if options.quick else DEFAULT_BATCH_SIZES),
        gate_batches=options.gate_batches if gate else 0,
    )


def _check_store(runs: Path) -> None:
    for record in RunStore(runs):
        if not is_stress_run(record["specification"]):
            raise InvalidFileError(f"{runs} holds runs of another command. Name another folder with --out.")


def _run_missing(options: StressOptions, plan: StressPlan, listener: ProgressListener) -> None:
    runs = plan.runs()
    with make_executor(options.jobs, options.ray) as executor:
        config = StressRunnerConfig(
            RunnerConfig(
                place=DataLocation(absolute_path(options.data)),
                models=models_folder(options.out, options.models),
                device=options.device or executor.default_device(),
            )
        )
        run_sweep(options.out, runs, config, listener, executor)


def _write_tables(options: StressOptions, records: Iterable[Mapping[str, Any]]) -> list[Path]:
    written = []
    for name, text in table_files(records, options.name).items():
        path = options.out / name
        with atomic_write(path) as draft:
            draft.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _write_figure(options: StressOptions, results: StressResults) -> list[Path]:
    from regtta.report.figures import running_score_panels, save_figure

    curves = stream_curves(results)
    if not curves:
        return []
    figure = running_score_panels(curves, _figure_caption(results))
    return [save_figure(figure, options.out / f"{options.name}{kind}", overwrite=True) for kind in _FIGURE_SUFFIXES]


def _figure_caption(results: StressResults) -> str:
    title = STRESS_SETTINGS[results.setting].title
    models = format_model_count(len(results.distinct("seed")))
    return (
        f"{title[0].upper()}{title[1:]}. Online R² in 20 equal slices of the stream, by the variance of all labels; "
        f"batches of {shown_batch_size(results)}; mean over {models} and {results.shifts}. The grey line at 0 is what "
        "predicting the mean label of the stream would score over the whole of it."
    )


def _notes(options: StressOptions, plan: StressPlan, setting: StressSetting) -> tuple[str, ...]:
    cannot = [name for name in plan.method_names if setting.method(name) is None]
    notes = [f"{', '.join(cannot)} cannot run on {setting.name}: it needs images."] if cannot else []
    if options.quick:
        notes.append("A quick run: one shift and one source model settle nothing.")
    return tuple(notes)
