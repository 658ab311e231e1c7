"""Results of the demo as JSON: all runs, their configuration, and summary statistics."""

import json

from regtta.experiments.demo.model import CHANNELS
from regtta.experiments.demo.recipe import SOURCE, Recipe
from regtta.experiments.demo.study import Run
from regtta.experiments.demo.summary import SCORES, Spread, Study
from regtta.experiments.environment import versions
from regtta.experiments.protocol import PROTOCOLS
from regtta.options import described


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
