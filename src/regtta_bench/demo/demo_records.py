"""Records of the demo: results and details as JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from regtta.adapter import Adapter
from regtta.errors import BatchError, MissingExtraError
from regtta.models import FeatureModel
from regtta.persistence import described, versions
from regtta.report.analysis import (
    compute_features,
    feature_histograms,
    gradient_norms,
    normality_report,
    output_report,
    prediction_report,
    principal_clouds,
    reconstruction,
    record_stream,
    shift_report,
    subspace_report,
    umap_clouds,
)
from regtta_bench.demo.demo_data import split, uci_digits
from regtta_bench.demo.demo_model import CHANNELS
from regtta_bench.demo.demo_recipe import SOURCE, Recipe
from regtta_bench.demo.demo_study import Run, SourceModel, scene_images
from regtta_bench.demo.demo_table import SCORES, Spread, Study
from regtta_bench.paper import PROTOCOLS


def results_json(study: Study, words: tuple[str, ...]) -> str:
    """Return the JSON text; without dates or durations, so that it is reproducible on one machine."""
    content = {
        "versions": versions(),
        "device": "cpu",
        "recipe": _recipe(study.recipe),
        "seeds": list(study.seeds),
        "labels": {arm.name: arm.label for arm in study.recipe.arms},
        "runs": [record for run in study.runs for record in run_records(study.recipe, run)],
        "summary": _summary(study),
        "closing": list(words),
    }
    # JSON has no NaN: values that are not finite are null already.
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def run_records(recipe: Recipe, run: Run) -> list[dict[str, object]]:
    """Return one record of ``run`` per protocol."""
    degradation = recipe.degradations.get(run.scene)
    return [
        {
            "source_seed": run.seed,
            "scene": run.scene,
            "degradation": None if degradation is None else described(degradation),
            "arm": run.arm,
            "method": described(recipe.arm(run.arm).method),
            "protocol": protocol,
            "scores": run.outcome.scores[protocol],
            "diverged": run.outcome.diverged or None,
            "batches": {"learned": run.outcome.learned, "refused": dict(run.outcome.refused)},
        }
        for protocol in PROTOCOLS
    ]


def _recipe(recipe: Recipe) -> dict[str, object]:
    return {
        "source_digits": recipe.source_digits,
        "target_digits": recipe.target_digits,
        "batch_size": recipe.batch_size,
        "channels": list(CHANNELS),
        "training": described(recipe.training),
    }


def _summary(study: Study) -> list[dict[str, object]]:
    """Return each cell of the tables: its spread, and its differences to Source and to the rival."""
    cells: list[dict[str, object]] = []
    for scene in study.recipe.scenes:
        for arm in study.recipe.arms:
            for protocol in PROTOCOLS:
                for score in SCORES:
                    at = {"scene": scene, "arm": arm.name, "protocol": protocol, "score": score}
                    cell = at | _spread(study.spread(**at))
                    for name, other in (("less_source", SOURCE), ("less_rival", arm.rival)):
                        if other not in (None, arm.name):
                            cell[name] = {"against": other} | _spread(study.difference(**at, against=other))
                    cells.append(cell)
    return cells


def _spread(spread: Spread) -> dict[str, object]:
    return {
        "mean": spread.mean,
        "sd": spread.sd,
        "count": len(spread.values),
        "diverged": spread.diverged,
    }


CHOSEN = "ssa"  # method whose stream and predictions are compared with the source model's
_BATCH = 256


def detail(recipe: Recipe, source: SourceModel, *, umap: bool = False) -> dict[str, Any]:
    """Return all analyses of the first degradation as JSON values.

    Args:
        recipe: recipe of the demo.
        source: source model to analyse.
        umap: include UMAP embeddings, which take longer.
    """
    scene = next(iter(recipe.degradations))
    images = scene_images(recipe, scene, source)
    adapted = dict(_adapted(recipe, source, images))
    statistics = source.statistics
    clean = split(uci_digits(), source.seed, source=recipe.source_digits, target=recipe.target_digits).source.inputs
    head = FeatureModel(source.model, statistics.head).head
    features = {
        recipe.arm(name).label: compute_features(adapter.export(), torch.split(images, _BATCH), statistics.head)
        for name, adapter in adapted.items()
    }
    before = features[recipe.arm(SOURCE).label]
    predictions = {name: adapted[name].predict(images) for name in (SOURCE, CHOSEN)}
    two = {"before": before, "after": features[recipe.arm(CHOSEN).label]}
    source_features = compute_features(source.model, torch.split(clean, _BATCH), statistics.head)
    return {
        "scene": scene,
        "source_seed": source.seed,
        "method": recipe.arm(CHOSEN).label,
        "subspace": subspace_report(statistics, head.weight).to_dict(),
        "gradients": gradient_norms(statistics).to_dict(),
        "reconstruction": reconstruction(statistics, features).to_dict(),
        "normality": normality_report(statistics, before).to_dict(),
        "histograms": feature_histograms(statistics, before, seed=source.seed).to_dict(),
        "predictions": {
            key: prediction_report(predictions[name], source.target.targets).to_dict()
            for key, name in (("before", SOURCE), ("after", CHOSEN))
        },
        "stream": _stream(recipe, source, images),
        **_compared(source, two, {"before": predictions[SOURCE], "after": predictions[CHOSEN]}),
        **_clouds(source, source_features, features, umap=umap),
    }


def _compared(source: SourceModel, features: Mapping[str, Tensor], predictions: Mapping[str, Tensor]) -> dict[str, Any]:
    """Compare features and predictions before and after; report the reason if the method diverged."""
    head = FeatureModel(source.model, source.statistics.head).head
    try:
        return {
            "shift": shift_report(source.statistics, features).to_dict(),
            "outputs": output_report(source.statistics, head, predictions).to_dict(),
        }
    except BatchError as error:
        return {"unmeasured": str(error)}


def _adapted(recipe: Recipe, source: SourceModel, images: Tensor) -> Iterator[tuple[str, Adapter]]:
    """Yield the methods without debiased running statistics, each adapted over the whole stream."""
    for arm in recipe.arms:
        if arm.method.schedule.batch_norm != "debiased":
            adapter = Adapter(source.model, arm.method, source.statistics)
            for batch in torch.split(images, recipe.batch_size):
                adapter.adapt(batch)
            yield arm.name, adapter


def _stream(recipe: Recipe, source: SourceModel, images: Tensor) -> dict[str, Any]:
    adapter = Adapter(source.model, recipe.arm(CHOSEN).method, source.statistics)
    labels = torch.split(source.target.targets, recipe.batch_size)
    return record_stream(adapter, torch.split(images, recipe.batch_size), labels).to_dict()


def _clouds(
    source: SourceModel, source_features: Tensor, features: Mapping[str, Tensor], *, umap: bool
) -> dict[str, Any]:
    """Return the analyses that need POT or umap-learn; without POT, the reason instead."""
    finite = {name: rows for name, rows in features.items() if bool(torch.isfinite(rows).all())}
    made: dict[str, Any] = {}
    try:
        made["clouds"] = principal_clouds(source.statistics, source_features, finite, seed=source.seed).to_dict()
    except MissingExtraError as error:
        made["missing"] = str(error)
    if umap:
        made["umap"] = umap_clouds(source.statistics, source_features, finite, seed=source.seed).to_dict()
    return made
