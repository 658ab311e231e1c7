"""End-to-end run of the demo: train, adapt, write the results and display them."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regtta.errors import FileError
from regtta.experiments.demo.closing import closing
from regtta.experiments.demo.detail import detail
from regtta.experiments.demo.figure import draw
from regtta.experiments.demo.recipe import Recipe
from regtta.experiments.demo.records import results_json
from regtta.experiments.demo.study import Run, SourceModel, make_source, one_thread, run_scenes
from regtta.experiments.demo.summary import Study
from regtta.experiments.demo.table import markdown, terminal_table
from regtta.experiments.report import write_page
from regtta.experiments.report.demonstration import DETAIL, demonstration_page
from regtta.options import check_count


@dataclass(frozen=True)
class DemoResult:
    """Results of a demo and the files written.

    Attributes:
        study: all runs.
        closing: summary in sentences.
        json_path: file with the runs and all options.
        markdown_path: file with the tables.
        figure_path: file with the figure.
        detail_path: file with the analyses of one source model on one stream.
        report_path: file with the HTML report.
        training_seconds: duration of the source models' training.
        adapting_seconds: duration of all methods on all streams.
    """

    study: Study
    closing: tuple[str, ...]
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
    recipe: Recipe | None = None,
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
    check_count("sources", sources)
    recipe = recipe or Recipe()
    _make_folder(out)
    seeds = tuple(range(seed, seed + sources))
    with one_thread(), _progress(console) as progress:
        models, training_seconds = _train(recipe, seeds, progress)
        runs, adapting_seconds = _adapt(recipe, models, progress)
        closer = detail(recipe, models[0], umap=umap)
    study = Study(recipe, seeds, tuple(runs))
    result = DemoResult(
        study,
        closing(study),
        out / "results.json",
        out / "results.md",
        out / "demo.png",
        out / DETAIL,
        out / "report.html",
        training_seconds,
        adapting_seconds,
    )
    _write(result, models[0], closer)
    _show(result, console)
    return result


def _train(recipe: Recipe, seeds: tuple[int, ...], progress: Progress) -> tuple[list[SourceModel], float]:
    started = time.perf_counter()
    advance = _task(progress, f"Training {_sources(len(seeds))}", len(seeds) * recipe.training.epochs)
    return [make_source(recipe, seed, advance=advance) for seed in seeds], time.perf_counter() - started


def _adapt(recipe: Recipe, models: list[SourceModel], progress: Progress) -> tuple[list[Run], float]:
    started = time.perf_counter()
    total = len(models) * len(recipe.scenes) * len(recipe.arms)
    advance = _task(progress, "Adapting to the streams", total)
    runs = []
    for source in models:
        for run in run_scenes(recipe, source):
            runs.append(run)
            advance()
    return runs, time.perf_counter() - started


def _write(result: DemoResult, example: SourceModel, closer: dict[str, Any]) -> None:
    figure = draw(result.study, example)
    try:
        result.json_path.write_text(results_json(result.study, result.closing), encoding="utf-8")
        result.markdown_path.write_text(markdown(result.study, result.closing), encoding="utf-8")
        figure.savefig(result.figure_path)
        result.detail_path.write_text(json.dumps(closer, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"Could not write into {result.json_path.parent}: {error}.") from error
    folder = result.report_path.parent
    page = demonstration_page(folder, shlex.join(["regtta", "report", str(folder)]))
    write_page(page, result.report_path, overwrite=True)


def _show(result: DemoResult, console: Console) -> None:
    console.print(terminal_table(result.study, console.width))
    for sentence in result.closing:
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
