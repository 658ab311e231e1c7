"""``regtta reproduce``: run the experiments of the paper and write its tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regtta.cli.user_code import describe_user_error, import_object, is_object_reference
from regtta.errors import ForeignFileError, OptionError
from regtta.methods import METHODS, Method, options_of
from regtta.options import check_choice
from regtta.persistence import written_whole
from regtta_bench.cli.bench_options import ReproduceOptions
from regtta_bench.data import Place
from regtta_bench.paper import (
    EXPERIMENTS,
    SETTINGS,
    Arm,
    ArmMaker,
    Experiment,
    Layout,
    arm_of,
    experiment,
    fits,
    parts_of,
    restricted,
)
from regtta_bench.sweep.executors.factory import hired
from regtta_bench.sweep.interfaces import Listener
from regtta_bench.sweep.run_specs import FULL, QUICK, Plan, check_weights
from regtta_bench.sweep.run_sweep import RUNS, absolute, check_results, make_runs, models_folder
from regtta_bench.sweep.runner import Tools
from regtta_bench.sweep.store import RunStore, key_of
from regtta_bench.tables import Filled, Sheet, as_csv, as_latex, as_markdown, fill, sheets_of
from regtta_bench.training import FROM_IMAGENET

SEEDS = 3


@dataclass(frozen=True)
class Reproduced:
    """Result of one experiment.

    Attributes:
        name: name of the experiment.
        sheets: its tables, formatted.
        written: output files.
        notes: remarks for the user, such as missing pretrained weights.
    """

    name: str
    sheets: tuple[Sheet, ...]
    written: tuple[Path, ...]
    notes: tuple[str, ...]


def list_experiments() -> tuple[tuple[str, str, str], ...]:
    """Return the name, data sets and summary of each experiment."""
    return tuple((e.name, ", ".join(s.name for s in e.settings), e.summary) for e in EXPERIMENTS.values())


def reproduce(options: ReproduceOptions, listener: Listener) -> tuple[Reproduced, ...]:
    """Run the missing runs of the experiments and write their tables.

    Options, data and folders are validated before the first run.
    """
    weights = dict(model_files(options.weights))
    if not options.names:
        raise OptionError("Name at least one experiment; regtta reproduce --list shows them.")
    chosen = [experiment(name) for name in dict.fromkeys(options.names)]
    for name in options.only:
        check_choice("--only", name, SETTINGS.keys())
    extra = {text: added_arm(text) for text in options.methods}
    layouts = {one.name: _layouts(one, extra, options.only) for one in chosen}
    _check_added(options.methods, layouts)
    check_weights(weights)
    plan = _plan(options, weights)
    check_results(options.out, tables_only=options.tables_only)
    if not options.tables_only:
        _run(options, plan, layouts, listener)
    records = {str(record["key"]): record for record in RunStore(options.out / RUNS)}
    try:
        return tuple(_written(one.name, layouts[one.name], plan, records, options) for one in chosen)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ForeignFileError(
            f"{options.out / RUNS} holds a run that is damaged, or that another version made "
            f"({type(error).__name__}: {error}). Name a new folder with --out."
        ) from error


def _plan(options: ReproduceOptions, weights: Mapping[str, Path]) -> Plan:
    if options.quick:
        return Plan(options.source_seeds or 1, options.seeds or 1, QUICK, weights)
    return Plan(options.source_seeds, options.seeds or SEEDS, FULL, weights)


def added_arm(text: str) -> ArmMaker:
    """Parse an additional row: ``NAME``, ``NAME:key=value,...`` or ``MODULE:NAME`` of a method of the user.

    A method of regtta runs with the paper's settings and the given options; a method of the user runs unchanged.

    Example:
        >>> from regtta_bench.paper.settings import SETTINGS
        >>> added_arm("ssa:metric=w2")(SETTINGS["california"], "regression").method.k
        10
    """
    name, _, settings = text.partition(":")
    if set(parts_of(name)) <= METHODS.keys() or not is_object_reference(text):
        given = options_of(METHODS, name, [part for part in settings.split(",") if part])
        return lambda setting, task: arm_of(setting, name, given, task=task) if fits(setting, name, task) else None
    method = _imported(text)
    return lambda setting, task: Arm(method, task)  # noqa: ARG005 - signature of ArmMaker


def _imported(text: str) -> Method:
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


def _check_added(methods: Iterable[str], layouts: Mapping[str, tuple[Layout, ...]]) -> None:
    """Raise if an additional method has no row in any table."""
    rows = {row.name for mine in layouts.values() for layout in mine for row in layout.rows}
    for text in methods:
        if text not in rows:
            raise OptionError(
                f"--method {text} fits no table of {', '.join(layouts)}: the tables have no row per method, or the "
                "method needs images, classes or BatchNorm, which their settings lack."
            )


def model_files(assignments: Iterable[str]) -> tuple[tuple[str, Path], ...]:
    """Parse assignments such as ``"resnet50=weights.pth"`` into pairs of architecture and file.

    Example:
        >>> model_files(["resnet50=weights.pth"])[0][0]
        'resnet50'
    """
    pairs = []
    for text in assignments:
        model, equals, path = text.partition("=")
        if not equals or not path:
            raise OptionError(f"Expected --weights MODEL=FILE, found {text!r}.")
        check_choice("the model of --weights", model, FROM_IMAGENET)
        pairs.append((model, Path(path)))
    return tuple(pairs)


def _layouts(one: Experiment, extra: Mapping[str, ArmMaker], only: tuple[str, ...]) -> tuple[Layout, ...]:
    layouts = one.layouts(extra)
    if only:
        layouts = tuple(kept for layout in layouts if (kept := restricted(layout, only)) is not None)
        if not layouts:
            there = ", ".join(setting.name for setting in one.settings)
            raise OptionError(f"{one.name} has nothing on {', '.join(only)}; it runs on {there}.")
    return layouts


def _run(options: ReproduceOptions, plan: Plan, layouts: Mapping[str, tuple[Layout, ...]], listener: Listener) -> None:
    runs = plan.all_runs(layout for mine in layouts.values() for layout in mine)
    with hired(options.jobs, options.ray) as crew:
        tools = Tools(
            place=Place(absolute(options.data), options.download, absolute(options.genders)),
            models=models_folder(options.out, options.models),
            device=options.device or crew.best_device(),
            weights={model: path.absolute() for model, path in plan.weights.items()},
        )
        make_runs(options.out, runs, tools, listener, crew)


def _written(
    name: str,
    layouts: tuple[Layout, ...],
    plan: Plan,
    records: Mapping[str, Mapping[str, Any]],
    options: ReproduceOptions,
) -> Reproduced:
    """Fill the tables of an experiment and write them as Markdown, CSV and LaTeX."""
    tables = [fill(layout, plan, records.values()) for layout in layouts]
    sheets = tuple(sheet for table in tables for sheet in sheets_of(table, smoke=options.quick))
    keys = (key_of(spec.plain()) for spec in plan.all_runs(layouts))
    used = [records[key] for key in keys if key in records]
    stem = f"{name}.quick" if options.quick else name
    contents = {
        "md": _heading(name, used, options) + as_markdown(sheets),
        "csv": as_csv(tables, smoke=options.quick),
        "tex": as_latex(sheets),
    }
    written = []
    for ending, text in contents.items():
        path = options.out / f"{stem}.{ending}"
        with written_whole(path) as draft:
            draft.write_text(text, encoding="utf-8")
        written.append(path)
    return Reproduced(name, sheets, tuple(written), _missing_weights(tables, plan))


def _heading(name: str, used: Iterable[Mapping[str, Any]], options: ReproduceOptions) -> str:
    """Return the heading with the command, the versions and the devices of the runs."""
    runs = list(used)
    devices = sorted({str(run["result"]["device"]) for run in runs})
    versions = sorted({", ".join(f"{k} {v}" for k, v in run["result"]["versions"].items()) for run in runs})
    return "\n".join(
        [
            f"# {name}{' (smoke run, not a result)' if options.quick else ''}",
            "",
            f"Made by `{command(name, options)}` from {len(runs)} runs on {'; '.join(devices) or 'no device'} "
            f"({'; '.join(versions) or 'nothing run'}), one line each in `{RUNS}`; "
            f"`{command(name, options)} --tables-only` makes these tables again from those lines.",
            "",
            "",
        ]
    )


def command(name: str, options: ReproduceOptions) -> str:
    """Return the command line that reproduces the numbers, without folders."""
    words = ["regtta", "reproduce", name]
    if options.source_seeds is not None:
        words += ["--source-seeds", str(options.source_seeds)]
    words += [] if options.seeds is None else ["--seeds", str(options.seeds)]
    words += [word for only in options.only for word in ("--only", only)]
    words += [word for method in options.methods for word in ("--method", method)]
    words += [word for model, path in model_files(options.weights) for word in ("--weights", f"{model}={path.name}")]
    return " ".join([*words, *(["--quick"] if options.quick else [])])


def _missing_weights(tables: Iterable[Filled], plan: Plan) -> tuple[str, ...]:
    models = dict.fromkeys(cell.setting.model for table in tables for cell in table.layout.cells())
    return tuple(
        f"{model} started from random weights, where the paper takes ImageNet's: name a file by --weights {model}=FILE."
        for model in models
        if model in FROM_IMAGENET and model not in plan.weights
    )
