"""Choices by a few labelled samples, drawn many times, and their scores on all other samples."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.selection import CandidateScore, choose, score_candidates

LABELS = (16, 32, 64, 128, 256)
RESAMPLES = 1000
TOLERANCE = 0.01  # differences of R² that do not count
FLOOR = -1.0

Rule = Callable[[Mapping[str, Tensor], Tensor, int], CandidateScore]

# --- rules -------------------------------------------------------------------------------------------


def choose_by_interval(predictions: Mapping[str, Tensor], targets: Tensor, seed: int) -> CandidateScore:
    """Return the choice of ``select``."""
    return choose(score_candidates(predictions, targets, resamples=RESAMPLES, seed=seed))


def choose_corrected(predictions: Mapping[str, Tensor], targets: Tensor, seed: int) -> CandidateScore:
    """Return the choice of ``select`` with offset and scale corrected where that is shown to help."""
    return choose(score_candidates(predictions, targets, correct="affine", resamples=RESAMPLES, seed=seed))


def choose_smallest_error(predictions: Mapping[str, Tensor], targets: Tensor, seed: int) -> CandidateScore:
    """Return the candidate with the smallest error on the labelled samples, whether or not it is shown to help."""
    rows = score_candidates(predictions, targets, resamples=1, seed=seed)
    return max(rows, key=lambda row: row.gain)


def choose_at_90_percent(predictions: Mapping[str, Tensor], targets: Tensor, seed: int) -> CandidateScore:
    """Return the choice of ``select`` with intervals of 90 % confidence."""
    return choose(score_candidates(predictions, targets, confidence=0.9, resamples=RESAMPLES, seed=seed))


RULES: Mapping[str, Rule] = {
    "select": choose_by_interval,
    "select, 90 %": choose_at_90_percent,
    "select, affine": choose_corrected,
    "smallest error": choose_smallest_error,
}


# --- resampling --------------------------------------------------------------------------------------


def clipped_r2(predictions: Tensor, targets: Tensor) -> float:
    """Return R² of predictions ``(N, O)``, averaged over outputs and clipped at −1; −1 if one is not finite."""
    deviation = ((targets - targets.mean(dim=0)) ** 2).sum(dim=0)
    score = float((1 - ((predictions - targets) ** 2).sum(dim=0) / deviation).mean())
    return max(FLOOR, score) if score == score else FLOOR  # noqa: PLR0124 - NaN


@dataclass(frozen=True)
class Choice:
    """One choice, scored on the samples that it was not made by.

    Attributes:
        gain: R² of the choice minus that of the unadapted model.
        loss: R² of the best candidate minus that of the choice.
        adapts: True if the choice is not the unadapted model.
    """

    gain: float
    loss: float
    adapts: bool


def draw_choices(
    predictions: Mapping[str, Tensor], targets: Tensor, labels: int, draws: int, rules: Mapping[str, Rule] = RULES
) -> dict[str, list[Choice]]:
    """Choose by ``labels`` random samples, ``draws`` times by each rule, and score on all other samples.

    Args:
        predictions: predictions ``(N, O)`` of the whole target by candidate; the unadapted model is the first.
        targets: labels ``(N, O)``.
        labels: number of labelled samples.
        draws: number of draws.
        rules: rules by name.
    """
    found: dict[str, list[Choice]] = {name: [] for name in rules}
    for draw in range(draws):
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(1000 * labels + draw))
        known, others = order[:labels], order[labels:]
        scores = {name: clipped_r2(values[others], targets[others]) for name, values in predictions.items()}
        best, unadapted = max(scores.values()), next(iter(scores.values()))
        for name, rule in rules.items():
            row = rule({each: values[known] for each, values in predictions.items()}, targets[known], draw)
            score = scores[row.candidate]
            if row.correction is not None:
                score = clipped_r2(row.correction.apply(predictions[row.candidate][others]), targets[others])
            found[name].append(Choice(score - unadapted, best - score, row.name != next(iter(predictions))))
    return found


def summarise_choices(choices: Sequence[Choice]) -> dict[str, float]:
    """Return how often choices are right, and what they gain and lose, as JSON values."""
    gains, losses = [choice.gain for choice in choices], [choice.loss for choice in choices]
    return {
        "right": statistics.fmean(loss <= TOLERANCE for loss in losses),
        "harmful": statistics.fmean(gain < -TOLERANCE for gain in gains),
        "adapts": statistics.fmean(choice.adapts for choice in choices),
        "gain": statistics.fmean(gains),
        "worst_gain": min(gains),
        "loss": statistics.fmean(losses),
        "worst_loss": max(losses),
    }


def score_rules(predictions: Mapping[str, Tensor], targets: Tensor, draws: int) -> dict[str, object]:
    """Return the summaries of all rules and numbers of labels that leave at least as many samples to score on."""
    sizes = [labels for labels in LABELS if 2 * labels <= len(targets)]
    summaries: dict[str, dict[str, object]] = {name: {} for name in RULES}
    for labels in sizes:
        for name, choices in draw_choices(predictions, targets, labels, draws).items():
            summaries[name][str(labels)] = summarise_choices(choices)
    return {
        "samples": len(targets),
        "r2": {name: clipped_r2(values, targets) for name, values in predictions.items()},
        "rules": summaries,
    }
