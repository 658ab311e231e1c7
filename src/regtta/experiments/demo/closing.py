"""Summary of a demo in sentences, generated from its scores."""

from collections.abc import Iterable

from regtta.experiments.demo.recipe import CLEAN, SOURCE, Arm
from regtta.experiments.demo.summary import Study
from regtta.experiments.numerals import number
from regtta.experiments.protocol import PROTOCOLS

# A sign test on five pairs that all agree still has p = 2 · 0.5⁵ = 0.06.
_FEWEST_FOR_A_SIGN_TEST = 6


def closing(study: Study) -> tuple[str, ...]:
    """Return sentences on the gain of BN-adapt, wins and losses of each method, clean digits, and significance."""
    rivals = [(arm, arm.rival) for arm in study.recipe.arms if arm.rival is not None]
    gains = [_gain(study, arm) for arm, rival in rivals if rival == SOURCE]
    duels = [_duel(study, arm, study.recipe.arm(rival)) for arm, rival in rivals if rival != SOURCE]
    return (*gains, *duels, _clean(study), _caution(len(study.seeds)))


def _gain(study: Study, arm: Arm) -> str:
    scenes = tuple(study.recipe.degradations)
    before, after = study.mean_over(scenes, SOURCE), study.mean_over(scenes, arm.name)
    if before is None or after is None:
        return f"{arm.label} has no mean over the degradations: a run diverged."
    return (
        f"{arm.label} takes the mean offline R² over the {len(scenes)} degradations from "
        f"{number(before)} (Source) to {number(after)}."
    )


def _duel(study: Study, arm: Arm, rival: Arm) -> str:
    """List the degradations on which ``arm`` is ahead in every source model, behind in every one, or neither."""
    outcomes: dict[str, list[str]] = {"beats": [], "loses": [], "undecided": [], "diverged": []}
    for scene in study.recipe.degradations:
        gap = study.difference(scene, arm.name, rival.name)
        if gap.mean is None:
            outcomes["diverged"].append(scene)
            continue
        kind = {1: "beats", -1: "loses"}.get(gap.direction() or 0, "undecided")
        outcomes[kind].append(f"{scene} {number(gap.mean, signed=True)}")
    total = len(study.recipe.degradations)
    beats = outcomes.pop("beats")
    parts = [f"beats {rival.label} on {len(beats)} of {total} degradations{_listed(beats)}"]
    verbs = {"loses": "loses on", "undecided": "is undecided on", "diverged": "cannot be compared on"}
    parts += [f"{verbs[kind]} {len(found)}{_listed(found)}" for kind, found in outcomes.items() if found]
    return f"{arm.label} {'; '.join(parts)}."


def _listed(scenes: Iterable[str]) -> str:
    listed = ", ".join(scenes)
    return f" ({listed})" if listed else ""


def _clean(study: Study) -> str:
    """State by how much the methods change the score of the undegraded stream."""
    parts = []
    for protocol in PROTOCOLS:
        gaps = [
            study.difference(CLEAN, arm.name, SOURCE, protocol=protocol).mean
            for arm in study.recipe.arms
            if arm.name != SOURCE
        ]
        finite = [gap for gap in gaps if gap is not None]
        if len(finite) < len(gaps) or not finite:
            return "On clean digits a run diverged."
        low, high = (number(end, signed=True) for end in (min(finite), max(finite)))
        parts.append(f"{low if low == high else f'{low} to {high}'} {protocol}")
    return f"On clean digits adapting moves the mean R² by {' and '.join(parts)}."


def _caution(sources: int) -> str:
    beats = 'Here "beats" and "loses" mean: on offline R², '
    if sources == 1:
        return beats + "with the one source model trained, which says nothing of others."
    words = beats + f"with every one of the {sources} source models"
    if sources < _FEWEST_FOR_A_SIGN_TEST:
        return words + "; so few show a direction, not significance."
    return words + "; no test of significance was made."
