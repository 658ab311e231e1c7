"""``regtta stress``: benchmark of adaptation on non-i.i.d. streams, with and without guards."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regtta.errors import ForeignFileError, OptionError
from regtta.options import check_choice, check_count
from regtta.persistence import written_whole
from regtta.report.formatting import format_model_count
from regtta_bench.cli.bench_options import StressOptions
from regtta_bench.data import Place
from regtta_bench.stress.findings import curves_of, shown_batch_size
from regtta_bench.stress.results import Results, results_of
from regtta_bench.stress.streams import KINDS
from regtta_bench.stress.stress_runner import StressTools
from regtta_bench.stress.stress_settings import ADAPTING, SETTINGS, SOURCE, StressSetting
from regtta_bench.stress.stress_specs import Plan, is_run
from regtta_bench.stress.stress_tables import gate_sheet, sketch, small_sheet, table_files
from regtta_bench.sweep.executors.factory import hired
from regtta_bench.sweep.interfaces import Listener
from regtta_bench.sweep.run_sweep import RUNS, absolute, check_results, make_runs, models_folder
from regtta_bench.sweep.runner import Tools
from regtta_bench.sweep.store import RunStore
from regtta_bench.tables import Sheet

SOURCE_MODELS = 3
BATCH_SIZES = (1, 8, 64)
QUICK_KINDS = ("iid", "sorted")
_FIGURES = (".png", ".svg")


@dataclass(frozen=True)
class Stressed:
    """Result of the benchmark.

    Attributes:
        sheets: summary tables, formatted.
        written: output files.
        notes: remarks for the user.
    """

    sheets: tuple[Sheet, ...]
    written: tuple[Path, ...]
    notes: tuple[str, ...]


def stress(options: StressOptions, listener: Listener) -> Stressed:
    """Run the missing runs, and write tables and a figure from all runs of the setting in the folder.

    Options, data and folder are validated before the first run.
    """
    check_choice("NAME", options.name, SETTINGS.keys())
    setting = SETTINGS[options.name]
    plan = plan_of(options, setting)
    check_results(options.out, tables_only=options.tables_only)
    _check_own(options.out / RUNS)
    if not options.tables_only:
        _run(options, plan, listener)
    records = list(RunStore(options.out / RUNS))
    results = results_of(records, options.name)
    if not results.runs:
        raise OptionError(f"{options.out / RUNS} holds no runs of {options.name}. Run without --tables-only first.")
    sheets = (sketch(results), *small_sheet(results), *gate_sheet(results))
    written = (*_tables(options, records), *_figure(options, results))
    return Stressed(tuple(sheet for sheet in sheets if sheet.lines), written, _notes(options, plan, setting))


def plan_of(options: StressOptions, setting: StressSetting) -> Plan:
    """Return the plan of the runs, or raise OptionError for an invalid option."""
    for option, given, known in (
        ("--kinds", options.kinds, tuple(KINDS)),
        ("--methods", options.methods, (SOURCE, *ADAPTING)),
        ("--parts", options.parts, setting.parts),
    ):
        for name in given:
            check_choice(f"each of {option}", name, known)
    for size in options.batch_sizes:
        check_count("each of --batch-sizes", size)
    gate = options.gate if options.gate is not None else not options.quick
    if gate:
        check_count("--gate-batches", options.gate_batches)
    return Plan(
        setting,
        source_models=options.source_models or (1 if options.quick else SOURCE_MODELS),
        kinds=options.kinds or (QUICK_KINDS if options.quick else tuple(KINDS)),
        arms=tuple(arm for arm in ADAPTING if not options.methods or arm in options.methods),
        parts=options.parts or (setting.parts[:1] if options.quick else setting.parts),
        batch_sizes=options.batch_sizes or (BATCH_SIZES[-1:] if options.quick else BATCH_SIZES),
        gate_batches=options.gate_batches if gate else 0,
    )


def _check_own(runs: Path) -> None:
    for record in RunStore(runs):
        if not is_run(record["specification"]):
            raise ForeignFileError(f"{runs} holds runs of another command. Name another folder with --out.")


def _run(options: StressOptions, plan: Plan, listener: Listener) -> None:
    runs = plan.runs()
    with hired(options.jobs, options.ray) as crew:
        tools = StressTools(
            Tools(
                place=Place(absolute(options.data)),
                models=models_folder(options.out, options.models),
                device=options.device or crew.best_device(),
            )
        )
        make_runs(options.out, runs, tools, listener, crew)


def _tables(options: StressOptions, records: Iterable[Mapping[str, Any]]) -> list[Path]:
    written = []
    for name, text in table_files(records, options.name).items():
        path = options.out / name
        with written_whole(path) as draft:
            draft.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _figure(options: StressOptions, results: Results) -> list[Path]:
    from regtta.report.figures import running_score_panels, save_figure

    curves = curves_of(results)
    if not curves:
        return []
    figure = running_score_panels(curves, _about(results))
    return [save_figure(figure, options.out / f"{options.name}{kind}", overwrite=True) for kind in _FIGURES]


def _about(results: Results) -> str:
    title = SETTINGS[results.setting].title
    models = format_model_count(len(results.there("seed")))
    return (
        f"{title[0].upper()}{title[1:]}. Online R² in 20 equal slices of the stream, by the variance of all labels; "
        f"batches of {shown_batch_size(results)}; mean over {models} and {results.shifts}. The grey line at 0 is what "
        "predicting the mean label of the stream would score over the whole of it."
    )


def _notes(options: StressOptions, plan: Plan, setting: StressSetting) -> tuple[str, ...]:
    cannot = [arm for arm in plan.arms if setting.method(arm) is None]
    notes = [f"{', '.join(cannot)} cannot run on {setting.name}: it needs images."] if cannot else []
    if options.quick:
        notes.append("A quick run: one shift and one source model settle nothing.")
    return tuple(notes)
