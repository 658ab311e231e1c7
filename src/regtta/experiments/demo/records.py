"""The results as JSON: every run, what it was made with, and what it comes to."""

import json

from regtta.experiments.demo.model import CHANNELS
from regtta.experiments.demo.recipe import SOURCE, Recipe
from regtta.experiments.demo.study import Run
from regtta.experiments.demo.summary import SCORES, Spread, Study
from regtta.experiments.environment import versions
from regtta.experiments.protocol import PROTOCOLS
from regtta.options import described


def results_json(study: Study, words: tuple[str, ...]) -> str:
    """The same text for the same seeds on one machine: no dates, no durations."""
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
    # NaN is no JSON: what is not finite was made null on the way here.
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def run_records(recipe: Recipe, run: Run) -> list[dict[str, object]]:
    """A run as one record for each protocol."""
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
    """Each cell of the tables: spread, difference to Source, difference to the rival."""
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
