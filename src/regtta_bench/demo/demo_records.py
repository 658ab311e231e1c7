"""Records of the demo: results and details as JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from regtta.adapter import Adapter
from regtta.errors import BatchError, MissingExtraError
from regtta.models import FeatureModel
from regtta.persistence import software_versions, to_dict
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
from regtta_bench.demo.demo_data import split_digits, uci_digits
from regtta_bench.demo.demo_model import CHANNELS
from regtta_bench.demo.demo_recipe import SOURCE, DemoRecipe
from regtta_bench.demo.demo_study import DemoRun, SourceModel, scene_images
from regtta_bench.demo.demo_table import SCORES, DemoStudy, Spread
from regtta_bench.paper import PROTOCOLS


def results_json(study: DemoStudy, words: tuple[str, ...]) -> str:
    """Return the JSON text; without dates or durations, so that it is reproducible on one machine."""
    content = {
        "versions": software_versions(),
        "device": "cpu",
        "recipe": _recipe(study.recipe),
        "seeds": list(study.seeds),
        "labels": {entry.name: entry.label for entry in study.recipe.methods},
        "runs": [record for run in study.runs for record in run_records(study.recipe, run)],
        "summary": _summary(study),
        "closing": list(words),
    }
    # JSON has no NaN: values that are not finite are null already.
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def run_records(recipe: DemoRecipe, run: DemoRun) -> list[dict[str, object]]:
    """Return one record of ``run`` per protocol."""
    degradation = recipe.degradations.get(run.scene)
    return [
        {
            "source_seed": run.seed,
            "scene": run.scene,
            "degradation": None if degradation is None else to_dict(degradation),
            "arm": run.method_name,
            "method": to_dict(recipe.find_method(run.method_name).method),
            "protocol": protocol,
            "scores": run.outcome.scores[protocol],
            "diverged": run.outcome.diverged or None,
            "batches": {"learned": run.outcome.learned, "refused": dict(run.outcome.refused)},
        }
        for protocol in PROTOCOLS
    ]


def _recipe(recipe: DemoRecipe) -> dict[str, object]:
    return {
        "source_digits": recipe.source_digits,
        "target_digits": recipe.target_digits,
        "batch_size": recipe.batch_size,
        "channels": list(CHANNELS),
        # The name under which version 0.1.0 wrote these hyperparameters.
        "training": to_dict(recipe.training) | {"type": "Training"},
    }


def _summary(study: DemoStudy) -> list[dict[str, object]]:
    """Return each cell of the tables: its spread, and its differences to Source and to the baseline."""
    cells: list[dict[str, object]] = []
    for scene in study.recipe.scenes:
        for entry in study.recipe.methods:
            for protocol in PROTOCOLS:
                for score in SCORES:
                    where: dict[str, str] = {"protocol": protocol, "score": score}
                    cell = {
                        "scene": scene,
                        "arm": entry.name,
                        **where,
                        **_spread(study.spread(scene, entry.name, **where)),
                    }
                    for name, other in (("less_source", SOURCE), ("less_rival", entry.baseline)):
                        if other not in (None, entry.name):
                            gap = study.difference(scene, entry.name, other, **where)
                            cell[name] = {"against": other} | _spread(gap)
                    cells.append(cell)
    return cells


def _spread(spread: Spread) -> dict[str, object]:
    return {
        "mean": spread.mean,
        "sd": spread.sd,
        "count": len(spread.values),
        "diverged": spread.diverged,
    }


SHOWN_METHOD = "ssa"  # method whose stream and predictions are compared with the source model's
_BATCH = 256


def analyse_example(recipe: DemoRecipe, source: SourceModel, *, umap: bool = False) -> dict[str, Any]:
    """Return all analyses of the first degradation as JSON values.

    Args:
        recipe: recipe of the demo.
        source: source model to analyse.
        umap: include UMAP embeddings, which take longer.
    """
    scene = next(iter(recipe.degradations))
    images = scene_images(recipe, scene, source)
    adapted = dict(_adapt_methods(recipe, source, images))
    statistics = source.statistics
    clean = split_digits(
        uci_digits(), source.seed, source=recipe.source_digits, target=recipe.target_digits
    ).source.inputs
    head = FeatureModel(source.model, statistics.head).head
    features = {
        recipe.find_method(name).label: compute_features(adapter.export(), torch.split(images, _BATCH), statistics.head)
        for name, adapter in adapted.items()
    }
    before = features[recipe.find_method(SOURCE).label]
    predictions = {name: adapted[name].predict(images) for name in (SOURCE, SHOWN_METHOD)}
    two = {"before": before, "after": features[recipe.find_method(SHOWN_METHOD).label]}
    source_features = compute_features(source.model, torch.split(clean, _BATCH), statistics.head)
    return {
        "scene": scene,
        "source_seed": source.seed,
        "method": recipe.find_method(SHOWN_METHOD).label,
        "subspace": subspace_report(statistics, head.weight).to_dict(),
        "gradients": gradient_norms(statistics).to_dict(),
        "reconstruction": reconstruction(statistics, features).to_dict(),
        "normality": normality_report(statistics, before).to_dict(),
        "histograms": feature_histograms(statistics, before, seed=source.seed).to_dict(),
        "predictions": {
            key: prediction_report(predictions[name], source.target.targets).to_dict()
            for key, name in (("before", SOURCE), ("after", SHOWN_METHOD))
        },
        "stream": _stream(recipe, source, images),
        **_compare_before_and_after(source, two, {"before": predictions[SOURCE], "after": predictions[SHOWN_METHOD]}),
        **_clouds(source, source_features, features, umap=umap),
    }


def _compare_before_and_after(
    source: SourceModel, features: Mapping[str, Tensor], predictions: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Compare features and predictions before and after; report the reason if the method diverged."""
    head = FeatureModel(source.model, source.statistics.head).head
    try:
        return {
            "shift": shift_report(source.statistics, features).to_dict(),
            "outputs": output_report(source.statistics, head, predictions).to_dict(),
        }
    except BatchError as error:
        return {"unmeasured": str(error)}


def _adapt_methods(recipe: DemoRecipe, source: SourceModel, images: Tensor) -> Iterator[tuple[str, Adapter]]:
    """Yield the main methods, each adapted over the whole stream."""
    for entry in recipe.main_methods:
        adapter = Adapter(source.model, entry.method, source.statistics)
        for batch in torch.split(images, recipe.batch_size):
            adapter.adapt(batch)
        yield entry.name, adapter


def _stream(recipe: DemoRecipe, source: SourceModel, images: Tensor) -> dict[str, Any]:
    adapter = Adapter(source.model, recipe.find_method(SHOWN_METHOD).method, source.statistics)
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
