"""Report of a ``regtta demo`` folder, built from the files in it."""

import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regtta.errors import FileError, InvalidFileError, OptionError
from regtta.persistence import MAX_JSON_BYTES, parse_json, read_bounded
from regtta.report.adaptation_figures import (
    make_assumption_figures,
    make_prediction_figures,
    make_shift_figures,
    make_stream_figures,
    make_subspace_figures,
)
from regtta.report.analysis import Clouds
from regtta.report.content import Page, ReportCell, ReportFigure, ReportTable, Section, Tone
from regtta.report.figures import cloud_panels, new_figure, root_figure
from regtta.report.formatting import format_model_count, format_number
from regtta.report.run_kinds import RunKind
from regtta_bench.tables import Difference, MethodScores, draw_streams, paired_difference

RESULTS, DETAIL = "results.json", "detail.json"
_KEYS = {
    RESULTS: {"versions", "device", "recipe", "seeds", "labels", "runs", "closing"},
    DETAIL: {"scene", "source_seed", "method", "stream"},
}
_CLEAN, _SOURCE, _BASELINE, _SHOWN_METHOD = "clean", "source", "bn_adapt_debiased", "ssa"

JsonObject = Mapping[str, Any]


def make_demo_page(folder: Path, command: str) -> Page:
    """Return the page of a folder written by ``regtta demo``.

    Args:
        folder: folder with ``results.json`` and ``detail.json``.
        command: shell command that reproduces the page.
    """
    results, detail = (_read(folder / name) for name in (RESULTS, DETAIL))
    scores = _scores(results)
    gain, over_rival = (_gain(results, other) for other in (_SOURCE, _BASELINE))
    labels = results["labels"]
    before, after = (_mean(scores, labels[name]) for name in (_SOURCE, _SHOWN_METHOD))
    scenes = [scene for scene in scores.streams if scene != _CLEAN]
    return Page(
        title="The demo: digits read as numbers while the scanner degrades",
        headline=_headline(len(scenes), before, after),
        tone="worse" if math.isnan(after) and not math.isnan(before) else _tone(gain),
        summary=(_sentence("the model as trained", gain), _sentence("BN-adapt debiased", over_rival)),
        facts=_facts(results),
        warnings=tuple(_warnings(results, detail)),
        sections=_sections(results, detail, scores),
        command=f"{_made_by(results, detail, folder)}\n{command}",
    )


def _headline(scenes: int, before: float, after: float) -> str:
    if math.isnan(after):
        return f"SSA diverged on one of the {scenes} degradations or more."
    start = "a diverged score" if math.isnan(before) else format_number(before)
    return f"SSA takes the mean R² over {scenes} degradations from {start} to {format_number(after)}."


def _made_by(results: JsonObject, detail: JsonObject, folder: Path) -> str:
    seeds = results["seeds"]
    words = ["regtta", "demo", "--out", str(folder), "--seed", str(seeds[0]), "--sources", str(len(seeds))]
    return shlex.join([*words, *(["--umap"] if "umap" in detail else [])])


def _read(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_bounded(path, MAX_JSON_BYTES).decode("utf-8"))
    except (FileError, ValueError) as error:
        raise InvalidFileError(
            f"{path} is not a valid file of regtta demo ({error}). Run regtta demo again."
        ) from error
    if not isinstance(content, dict) or not _KEYS[path.name] <= content.keys():
        raise InvalidFileError(
            f"{path} is not a valid file of regtta demo: expected an object with the keys {sorted(_KEYS[path.name])}. "
            "Run regtta demo again."
        )
    return content


def _runs(results: JsonObject, method_name: str, scene: str) -> dict[int, float]:
    """Return offline R² by source seed, without runs that diverged."""
    return {
        run["source_seed"]: run["scores"]["r2"]
        for run in results["runs"]
        if (run["arm"], run["scene"], run["protocol"]) == (method_name, scene, "offline") and not run["diverged"]
    }


def _scores(results: JsonObject) -> MethodScores:
    labels, scenes = results["labels"], list(dict.fromkeys(run["scene"] for run in results["runs"]))
    found = {
        method_name: [list(_runs(results, method_name, scene).values()) for scene in scenes] for method_name in labels
    }
    whole = len(results["seeds"])
    return MethodScores(
        score="offline R²",
        streams=tuple(scenes),
        means={
            labels[method_name]: np.array([statistics.fmean(v) if len(v) == whole else math.nan for v in values])
            for method_name, values in found.items()
        },
        sds={
            labels[method_name]: np.array([statistics.stdev(v) if len(v) > 1 else math.nan for v in values])
            for method_name, values in found.items()
        },
        published={label: np.full(len(scenes), math.nan) for label in labels.values()},
        sources=whole,
    )


def _gain(results: JsonObject, other: str) -> Difference:
    """Return the difference of SSA and ``other`` in R² averaged over degradations, paired over source models."""
    scenes = [scene for scene in dict.fromkeys(run["scene"] for run in results["runs"]) if scene != _CLEAN]
    mine, theirs = (
        {
            seed: statistics.fmean(values)
            for seed in results["seeds"]
            if len(values := [runs[seed] for s in scenes if seed in (runs := _runs(results, method_name, s))])
            == len(scenes)
        }
        for method_name in (_SHOWN_METHOD, other)
    )
    return paired_difference(mine, theirs)


def _tone(gap: Difference) -> Tone:
    if not gap.is_significant:
        return "undecided"
    return "better" if gap.low > 0 else "worse"


def _sentence(other: str, gap: Difference) -> str:
    if math.isnan(gap.mean):
        return f"Against {other} it cannot be compared: a run diverged."
    sure = (
        ""
        if math.isnan(gap.low)
        else f", 95 % interval {format_number(gap.low, signed=True)} to {format_number(gap.high, signed=True)}"
    )
    models = format_model_count(gap.pairs)
    return f"Over {other} that is {format_number(gap.mean, signed=True)}{sure}, over {models}."


def _mean(scores: MethodScores, label: str) -> float:
    kept = [value for scene, value in zip(scores.streams, scores.means[label], strict=True) if scene != _CLEAN]
    return float(np.mean(kept))


def _facts(results: JsonObject) -> tuple[tuple[str, str], ...]:
    recipe = results["recipe"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (
        ("data", f"UCI digits: {recipe['source_digits']} to train on, the others to adapt to"),
        ("model", f"convolutions of {', '.join(map(str, recipe['channels']))} channels, BatchNorm, a linear head"),
        ("source models", ", ".join(f"seed {seed}" for seed in results["seeds"])),
        ("stream", f"batches of {recipe['batch_size']}, seen once"),
        ("versions", versions),
        ("device", str(results["device"])),
    )


def _warnings(results: JsonObject, detail: JsonObject) -> list[str]:
    found = []
    if len(results["seeds"]) < 6:
        found.append(f"{format_model_count(len(results['seeds']))} show a direction, not significance.".capitalize())
    gone = sum(1 for run in results["runs"] if run["diverged"] and run["protocol"] == "offline")
    if gone:
        found.append(f"{gone} run{'s' if gone > 1 else ''} diverged.")
    if "missing" in detail:
        found.append(f"A figure is missing. {detail['missing']}")
    if "unmeasured" in detail:
        found.append(f"Figures of {detail['method']} are missing: {detail['unmeasured']}")
    return found


def _sections(results: JsonObject, detail: JsonObject, scores: MethodScores) -> tuple[Section, ...]:
    where = f"Source model {detail['source_seed']} on the {detail['scene']} digits."
    chosen = f"{detail['method']}. {where}"
    return (
        Section("All methods on all streams", tuple(results["closing"]), (_grid(scores),), (_overview(scores),)),
        Section("Before and after", (chosen,), figures=make_shift_figures(detail)),
        Section("Predictions", (chosen,), figures=make_prediction_figures(detail)),
        Section("The stream", (chosen,), figures=make_stream_figures(detail)),
        Section("Features of every method", (where,), figures=_clouds(detail)),
        Section(
            "The source's subspace", (f"Source model {detail['source_seed']}.",), (), make_subspace_figures(detail)
        ),
        Section("Assumptions of alignment", (where,), figures=make_assumption_figures(detail)),
    )


def _grid(scores: MethodScores) -> ReportTable:
    rows = []
    for label, means in scores.means.items():
        entries = [
            ReportCell("diverged")
            if math.isnan(mean)
            else ReportCell(format_number(mean) + ("" if math.isnan(sd) else f" ± {sd:.3f}"), value=float(mean))
            for mean, sd in zip(means, scores.sds[label], strict=True)
        ]
        rows.append((ReportCell(label), *entries))
    note = f"Mean ± standard deviation over {scores.sources} source models; offline, one pass."
    return ReportTable("Offline R²", ("method", *scores.streams), tuple(rows), (note,))


def _overview(scores: MethodScores) -> ReportFigure:
    axes = new_figure(8.4, 3.6).add_subplot()
    figure = root_figure(draw_streams(scores, axes))
    return ReportFigure(
        "Offline R² on every stream",
        "Marks for each method on the clean stream and on each degradation, with error bars.",
        "Arrows: scores far below the others.",
        figure,
    )


def _clouds(detail: JsonObject) -> tuple[ReportFigure, ...]:
    made = []
    for key, title, caption in (
        ("clouds", "Principal components", "The directions are the source's, the same in every panel."),
        ("umap", "UMAP", "The map was learned on the source's features before adapting."),
    ):
        if key in detail:
            figure = cloud_panels(Clouds.from_dict(detail[key]))
            alt = f"A panel for each method: source points and target points, {title}."
            made.append(ReportFigure(f"{title} of the features", alt, caption, figure))
    return tuple(made)


def _demo_run_page(paths: Sequence[Path], command: str) -> Page:
    if len(paths) > 1:
        raise OptionError(f"Expected one folder of regtta demo, found {len(paths)}. Write one report per folder.")
    return make_demo_page(paths[0], command)


DEMO_RUN = RunKind(
    name="demo",
    output="a folder of regtta demo",
    matches=lambda path: (path / RESULTS).is_file() and (path / DETAIL).is_file(),
    page=_demo_run_page,
)
