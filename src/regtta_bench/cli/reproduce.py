"""``regtta run_experiments``: run the experiments of the paper and write its tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regtta.cli.user_code import describe_user_error, import_object, is_object_reference
from regtta.errors import InvalidFileError, OptionError
from regtta.methods import METHODS, Method, method_options
from regtta.options import check_choice
from regtta.persistence import atomic_write
from regtta_bench.cli.bench_options import ReproduceOptions
from regtta_bench.data import DataLocation
from regtta_bench.paper import (
    EXPERIMENTS,
    SETTINGS,
    Experiment,
    MethodConfig,
    MethodConfigFactory,
    TableSpec,
    get_experiment,
    is_supported,
    make_method_config,
    method_names,
    restrict_table,
)
from regtta_bench.sweep.executors.factory import make_executor
from regtta_bench.sweep.interfaces import ProgressListener
from regtta_bench.sweep.run_specs import FULL_SCALE, QUICK_SCALE, SweepPlan, check_weights
from regtta_bench.sweep.run_sweep import (
    RUNS_FILE,
    absolute_path,
    check_results_folder,
    join_runs,
    make_folder,
    models_folder,
    run_sweep,
)
from regtta_bench.sweep.runner import RunnerConfig
from regtta_bench.sweep.store import RunStore, compute_key
from regtta_bench.tables import (
    FilledTable,
    TextTable,
    fill_table,
    make_text_tables,
    render_csv,
    render_latex,
    render_markdown,
)
from regtta_bench.training import PRETRAINED_MODELS

DEFAULT_SEEDS = 3


@dataclass(frozen=True)
class ReproduceReport:
    """Result of one experiment.

    Attributes:
        name: name of the experiment.
        tables: its tables as text.
        written: output files.
        notes: remarks for the user, such as missing pretrained weights.
    """

    name: str
    tables: tuple[TextTable, ...]
    written: tuple[Path, ...]
    notes: tuple[str, ...]


def list_experiments() -> tuple[tuple[str, str, str], ...]:
    """Return the name, data sets and summary of each experiment."""
    return tuple((e.name, ", ".join(s.name for s in e.settings), e.summary) for e in EXPERIMENTS.values())


def run_experiments(options: ReproduceOptions, listener: ProgressListener) -> tuple[ReproduceReport, ...]:
    """Run the missing runs of the experiments and write their tables.

    Options, data and folders are validated before the first run.
    """
    weights = dict(parse_weights(options.weights))
    if not options.names:
        raise OptionError("Name at least one experiment; regtta reproduce --list shows them.")
    chosen = [get_experiment(name) for name in dict.fromkeys(options.names)]
    for name in options.only:
        check_choice("--only", name, SETTINGS.keys())
    user_methods = {text: parse_method(text) for text in options.methods}
    table_specs = {experiment.name: _select_tables(experiment, user_methods, options.only) for experiment in chosen}
    _check_user_methods(options.methods, table_specs)
    check_weights(weights)
    plan = make_plan(options, weights, seeds=DEFAULT_SEEDS)
    prepare_results_folder(options)
    if not options.tables_only:
        run_missing_runs(options, plan, table_specs, listener)
    records = {str(record["key"]): record for record in RunStore(options.out / RUNS_FILE)}
    try:
        return tuple(
            _write_tables(experiment.name, table_specs[experiment.name], plan, records, options)
            for experiment in chosen
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidFileError(
            f"{options.out / RUNS_FILE} holds a run that is damaged, or that another version made "
            f"({type(error).__name__}: {error}). Name a new folder with --out."
        ) from error


def make_plan(options: ReproduceOptions, weights: Mapping[str, Path], *, seeds: int) -> SweepPlan:
    """Return the plan of the sweep, with ``seeds`` adaptation seeds by default."""
    if options.source_seeds is not None and options.source_seed_range is not None:
        raise OptionError("Expected --source-seeds or --source-seed-range, found both. Pass one of them.")
    source_seeds = options.source_seed_range or options.source_seeds
    if options.quick:
        return SweepPlan(source_seeds or 1, options.seeds or 1, QUICK_SCALE, weights)
    return SweepPlan(source_seeds, options.seeds or seeds, FULL_SCALE, weights)


def prepare_results_folder(options: ReproduceOptions) -> None:
    """Check the folder of results, and add the runs of other files to it."""
    if options.join:
        check_results_folder(options.out)
        make_folder(options.out)
        join_runs(RunStore(options.out / RUNS_FILE), options.join)
    check_results_folder(options.out, tables_only=options.tables_only)


def parse_method(text: str) -> MethodConfigFactory:
    """Parse an additional row: ``NAME``, ``NAME:key=value,...`` or ``MODULE:NAME`` of a method of the user.

    A method of regtta runs with the paper's settings and the given options; a method of the user runs unchanged.

    Example:
        >>> from regtta_bench.paper.settings import SETTINGS
        >>> parse_method("ssa:metric=w2")(SETTINGS["california"], "regression").method.k
        10
    """
    name, _, settings = text.partition(":")
    if set(method_names(name)) <= METHODS.keys() or not is_object_reference(text):
        given = method_options(name, [part for part in settings.split(",") if part])
        return lambda setting, task: (
            make_method_config(setting, name, given, task=task) if is_supported(setting, name, task) else None
        )
    method = _import_method(text)
    return lambda setting, task: MethodConfig(method, task)  # noqa: ARG005 - signature of MethodConfigFactory


def _import_method(text: str) -> Method:
    found = import_object(text, "--method")
    if not isinstance(found, Method) and callable(found):
        try:
            found = found()
        except Exception as error:  # user code may raise anything
            raise OptionError(
                f"--method {text} could not be called without arguments: {describe_user_error(error)}."
            ) from error
    if not isinstance(found, Method):
        raise OptionError(f"Expected --method {text} to be a method or to return one, found {type(found).__name__}.")
    return found


def _check_user_methods(methods: Iterable[str], table_specs: Mapping[str, tuple[TableSpec, ...]]) -> None:
    """Raise if an additional method has no row in any table."""
    rows = {row.name for mine in table_specs.values() for table_spec in mine for row in table_spec.rows}
    for text in methods:
        if text not in rows:
            raise OptionError(
                f"--method {text} fits no table of {', '.join(table_specs)}: the tables have no row per method, or the "
                "method needs images, classes or BatchNorm, which their settings lack."
            )


def parse_weights(assignments: Iterable[str]) -> tuple[tuple[str, Path], ...]:
    """Parse assignments such as ``"resnet50=weights.pth"`` into pairs of architecture and file.

    Example:
        >>> parse_weights(["resnet50=weights.pth"])[0][0]
        'resnet50'
    """
    pairs = []
    for text in assignments:
        model, equals, path = text.partition("=")
        if not equals or not path:
            raise OptionError(f"Expected --weights MODEL=FILE, found {text!r}.")
        check_choice("the model of --weights", model, PRETRAINED_MODELS)
        pairs.append((model, Path(path)))
    return tuple(pairs)


def _select_tables(
    experiment: Experiment, user_methods: Mapping[str, MethodConfigFactory], only: tuple[str, ...]
) -> tuple[TableSpec, ...]:
    table_specs = experiment.table_specs(user_methods)
    if only:
        table_specs = tuple(
            chosen for table_spec in table_specs if (chosen := restrict_table(table_spec, only)) is not None
        )
        if not table_specs:
            there = ", ".join(setting.name for setting in experiment.settings)
            raise OptionError(f"{experiment.name} has nothing on {', '.join(only)}; it runs on {there}.")
    return table_specs


def run_missing_runs(
    options: ReproduceOptions,
    plan: SweepPlan,
    table_specs: Mapping[str, tuple[TableSpec, ...]],
    listener: ProgressListener,
) -> None:
    """Execute the runs of the tables that are not in the folder of results."""
    runs = plan.all_runs(table_spec for mine in table_specs.values() for table_spec in mine)
    if not runs:
        raise OptionError("No source model has a seed in --source-seed-range. Seeds begin at 0.")
    with make_executor(options.jobs, options.ray) as executor:
        config = RunnerConfig(
            place=DataLocation(absolute_path(options.data), options.download, absolute_path(options.genders)),
            models=models_folder(options.out, options.models),
            device=options.device or executor.default_device(),
            weights={model: path.absolute() for model, path in plan.weights.items()},
        )
        run_sweep(options.out, runs, config, listener, executor)


def _write_tables(
    name: str,
    table_specs: tuple[TableSpec, ...],
    plan: SweepPlan,
    records: Mapping[str, Mapping[str, Any]],
    options: ReproduceOptions,
) -> ReproduceReport:
    """Fill the tables of an experiment and write them as Markdown, CSV and LaTeX."""
    filled = [fill_table(table_spec, plan, records.values()) for table_spec in table_specs]
    tables = tuple(text for table in filled for text in make_text_tables(table, smoke=options.quick))
    keys = (compute_key(spec.to_dict()) for spec in plan.all_runs(table_specs))
    used = [records[key] for key in keys if key in records]
    stem = f"{name}.quick" if options.quick else name
    contents = {
        "md": make_heading(name, used, options) + render_markdown(tables),
        "csv": render_csv(filled, smoke=options.quick),
        "tex": render_latex(tables),
    }
    written = []
    for ending, text in contents.items():
        path = options.out / f"{stem}.{ending}"
        with atomic_write(path) as draft:
            draft.write_text(text, encoding="utf-8")
        written.append(path)
    return ReproduceReport(name, tables, tuple(written), _missing_weights(filled, plan))


def make_heading(name: str, used: Iterable[Mapping[str, Any]], options: ReproduceOptions) -> str:
    """Return the heading with the command, the versions and the devices of the runs."""
    runs = list(used)
    devices = sorted({str(run["result"]["device"]) for run in runs})
    versions = sorted({", ".join(f"{k} {v}" for k, v in run["result"]["versions"].items()) for run in runs})
    return "\n".join(
        [
            f"# {name}{' (smoke run, not a result)' if options.quick else ''}",
            "",
            f"Made by `{command_line(name, options)}` from {len(runs)} runs on {'; '.join(devices) or 'no device'} "
            f"({'; '.join(versions) or 'nothing run'}), one line each in `{RUNS_FILE}`; "
            f"`{command_line(name, options)} --tables-only` makes these tables again from those lines.",
            "",
            "",
        ]
    )


def command_line(name: str, options: ReproduceOptions) -> str:
    """Return the command line that reproduces the numbers, without folders."""
    words = ["regtta", "reproduce", name]
    if options.source_seeds is not None:
        words += ["--source-seeds", str(options.source_seeds)]
    if options.source_seed_range is not None:
        words += ["--source-seed-range", f"{options.source_seed_range.start}:{options.source_seed_range.stop}"]
    words += [] if options.seeds is None else ["--seeds", str(options.seeds)]
    words += [word for only in options.only for word in ("--only", only)]
    words += [word for method in options.methods for word in ("--method", method)]
    words += [word for model, path in parse_weights(options.weights) for word in ("--weights", f"{model}={path.name}")]
    return " ".join([*words, *(["--quick"] if options.quick else [])])


def _missing_weights(tables: Iterable[FilledTable], plan: SweepPlan) -> tuple[str, ...]:
    models = dict.fromkeys(cell.setting.model for table in tables for cell in table.table_spec.cells())
    return tuple(
        f"{model} started from random weights, where the paper takes ImageNet's: name a file by --weights {model}=FILE."
        for model in models
        if model in PRETRAINED_MODELS and model not in plan.weights
    )
