"""Running the demo and stating its conclusions."""

import json
import shlex
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regtta.errors import FileError
from regtta.options import check_positive_int
from regtta.report import write_page
from regtta.report.formatting import format_number
from regtta_bench.demo.demo_figure import draw_demo_figure
from regtta_bench.demo.demo_page import DETAIL, make_demo_page
from regtta_bench.demo.demo_recipe import CLEAN, SOURCE, DemoMethod, DemoRecipe
from regtta_bench.demo.demo_records import analyse_example, results_json
from regtta_bench.demo.demo_study import DemoRun, SourceModel, make_source, one_thread, run_scenes
from regtta_bench.demo.demo_table import DemoStudy, markdown, terminal_table
from regtta_bench.paper import PROTOCOLS

# A sign test on five pairs that all agree still has p = 2 · 0.5⁵ = 0.06.
_MIN_MODELS_FOR_A_SIGN_TEST = 6


def state_conclusions(study: DemoStudy) -> tuple[str, ...]:
    """Return sentences on the gain of BN-adapt, wins and losses of each method, clean digits, and significance."""
    with_baselines = [(entry, entry.baseline) for entry in study.recipe.methods if entry.baseline is not None]
    gains = [_gain(study, entry) for entry, baseline in with_baselines if baseline == SOURCE]
    comparisons = [
        _compare_with_baseline(study, entry, study.recipe.find_method(baseline))
        for entry, baseline in with_baselines
        if baseline != SOURCE
    ]
    return (*gains, *comparisons, _clean(study), _significance_note(len(study.seeds)))


def _gain(study: DemoStudy, entry: DemoMethod) -> str:
    scenes = tuple(study.recipe.degradations)
    before, after = study.mean_over(scenes, SOURCE), study.mean_over(scenes, entry.name)
    if before is None or after is None:
        return f"{entry.label} has no mean over the degradations: a run diverged."
    return (
        f"{entry.label} takes the mean offline R² over the {len(scenes)} degradations from "
        f"{format_number(before)} (Source) to {format_number(after)}."
    )


def _compare_with_baseline(study: DemoStudy, entry: DemoMethod, baseline: DemoMethod) -> str:
    """List the degradations on which ``entry`` is ahead in every source model, behind in every one, or neither."""
    outcomes: dict[str, list[str]] = {"beats": [], "loses": [], "undecided": [], "diverged": []}
    for scene in study.recipe.degradations:
        gap = study.difference(scene, entry.name, baseline.name)
        if gap.mean is None:
            outcomes["diverged"].append(scene)
            continue
        kind = {1: "beats", -1: "loses"}.get(gap.direction() or 0, "undecided")
        outcomes[kind].append(f"{scene} {format_number(gap.mean, signed=True)}")
    total = len(study.recipe.degradations)
    beats = outcomes.pop("beats")
    parts = [f"beats {baseline.label} on {len(beats)} of {total} degradations{_listed(beats)}"]
    verbs = {"loses": "loses on", "undecided": "is undecided on", "diverged": "cannot be compared on"}
    parts += [f"{verbs[kind]} {len(found)}{_listed(found)}" for kind, found in outcomes.items() if found]
    return f"{entry.label} {'; '.join(parts)}."


def _listed(scenes: Iterable[str]) -> str:
    listed = ", ".join(scenes)
    return f" ({listed})" if listed else ""


def _clean(study: DemoStudy) -> str:
    """State by how much the methods change the score of the undegraded stream."""
    parts = []
    for protocol in PROTOCOLS:
        gaps = [
            study.difference(CLEAN, entry.name, SOURCE, protocol=protocol).mean
            for entry in study.recipe.methods
            if entry.name != SOURCE
        ]
        finite = [gap for gap in gaps if gap is not None]
        if len(finite) < len(gaps) or not finite:
            return "On clean digits a run diverged."
        low, high = (format_number(end, signed=True) for end in (min(finite), max(finite)))
        parts.append(f"{low if low == high else f'{low} to {high}'} {protocol}")
    return f"On clean digits adapting moves the mean R² by {' and '.join(parts)}."


def _significance_note(sources: int) -> str:
    beats = 'Here "beats" and "loses" mean: on offline R², '
    if sources == 1:
        return beats + "with the one source model trained, which says nothing of others."
    words = beats + f"with every one of the {sources} source models"
    if sources < _MIN_MODELS_FOR_A_SIGN_TEST:
        return words + "; so few show a direction, not significance."
    return words + "; no test of significance was made."


@dataclass(frozen=True)
class DemoResult:
    """Results of a demo and the files written.

    Attributes:
        study: all runs.
        conclusions: summary in sentences.
        json_path: file with the runs and all options.
        markdown_path: file with the tables.
        figure_path: file with the figure.
        detail_path: file with the analyses of one source model on one stream.
        report_path: file with the HTML report.
        training_seconds: duration of the source models' training.
        adapting_seconds: duration of all methods on all streams.
    """

    study: DemoStudy
    conclusions: tuple[str, ...]
    json_path: Path
    markdown_path: Path
    figure_path: Path
    detail_path: Path
    report_path: Path
    training_seconds: float
    adapting_seconds: float


def run_demo(
    *,
    out: Path,
    console: Console,
    seed: int = 0,
    sources: int = 3,
    recipe: DemoRecipe | None = None,
    umap: bool = False,
) -> DemoResult:
    """Train source models, adapt every method to every stream, and write the results.

    Runs on one CPU thread, with bit-identical results on one machine.

    Args:
        out: folder for the results, the figure and the report; created if missing.
        console: console for progress, the table and the paths.
        seed: seed of the first source model; the others follow it.
        sources: number of source models.
        recipe: configuration of the demo; the full demo by default.
        umap: include UMAP embeddings in the report, which take longer.
    """
    check_positive_int("sources", sources)
    recipe = recipe or DemoRecipe()
    _make_folder(out)
    seeds = tuple(range(seed, seed + sources))
    with one_thread(), _progress(console) as progress:
        models, training_seconds = _train(recipe, seeds, progress)
        runs, adapting_seconds = _adapt(recipe, models, progress)
        analyses = analyse_example(recipe, models[0], umap=umap)
    study = DemoStudy(recipe, seeds, tuple(runs))
    result = DemoResult(
        study,
        state_conclusions(study),
        out / "results.json",
        out / "results.md",
        out / "demo.png",
        out / DETAIL,
        out / "report.html",
        training_seconds,
        adapting_seconds,
    )
    _write(result, models[0], analyses)
    _show(result, console)
    return result


def _train(recipe: DemoRecipe, seeds: tuple[int, ...], progress: Progress) -> tuple[list[SourceModel], float]:
    started = time.perf_counter()
    advance = _task(progress, f"Training {_sources(len(seeds))}", len(seeds) * recipe.training.epochs)
    return [make_source(recipe, seed, on_epoch=advance) for seed in seeds], time.perf_counter() - started


def _adapt(recipe: DemoRecipe, models: list[SourceModel], progress: Progress) -> tuple[list[DemoRun], float]:
    started = time.perf_counter()
    total = len(models) * len(recipe.scenes) * len(recipe.methods)
    advance = _task(progress, "Adapting to the streams", total)
    runs = []
    for source in models:
        for run in run_scenes(recipe, source):
            runs.append(run)
            advance()
    return runs, time.perf_counter() - started


def _write(result: DemoResult, example: SourceModel, analyses: dict[str, Any]) -> None:
    figure = draw_demo_figure(result.study, example)
    try:
        result.json_path.write_text(results_json(result.study, result.conclusions), encoding="utf-8")
        result.markdown_path.write_text(markdown(result.study, result.conclusions), encoding="utf-8")
        figure.savefig(result.figure_path)
        result.detail_path.write_text(json.dumps(analyses, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"Could not write into {result.json_path.parent}: {error}.") from error
    folder = result.report_path.parent
    page = make_demo_page(folder, shlex.join(["regtta", "report", str(folder)]))
    write_page(page, result.report_path, overwrite=True)


def _show(result: DemoResult, console: Console) -> None:
    console.print(terminal_table(result.study, console.width))
    for sentence in result.conclusions:
        console.print(f"• {sentence}", markup=False, highlight=False)
    console.print()
    for path in (result.figure_path, result.markdown_path, result.json_path, result.report_path):
        # No wrapping: a path over two lines cannot be copied.
        console.print(f"Wrote {path}", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{result.training_seconds:.0f} s training, {result.adapting_seconds:.0f} s adapting.",
        highlight=False,
    )


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot create the folder {out}: {error}. Choose another folder.") from error


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
    )


def _task(progress: Progress, description: str, total: int) -> Callable[[], None]:
    task = progress.add_task(description, total=total)
    return lambda: progress.advance(task)


def _sources(count: int) -> str:
    return f"{count} source model" + ("s" if count > 1 else "")
