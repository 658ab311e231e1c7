"""Weights of the source model and the adapted model from their errors on labelled samples, with a regret bound.

The forecaster is AdaHedge for two experts (de Rooij, van Erven, Grünwald and Koolen, "Follow the leader if you can,
hedge if you must", JMLR 2014) with two changes: the loss of the weighted mean of the predictions takes the place of the
weighted mean of the losses, and labels may be delayed, as in Flaspohler et al., "Online learning with optimism and
delay", ICML 2021. Losses are in ``[0, 1]``, and the loss of the mean is at most the mean of the losses, as for squared
errors, which are convex. For the n-th label that arrives:

* ``L_s`` and ``L_a`` are the sums of the losses of both models on the labels before it, and the weight of the adapted
  model is ``w_n = 1 / (1 + exp(−η_n (L_s − L_a)))``;
* the mix loss is ``m_n = −ln((1 − w_n) exp(−η_n ℓ_s) + w_n exp(−η_n ℓ_a)) / η_n``;
* the gap is ``δ_n = ℓ_n − m_n``, where ``ℓ_n`` is the loss of the mean with the weight of the time when the sample was
  predicted, and ``M_n = max(M_0, max_{j ≤ n} Σ_{i ≤ j} δ_i)``;
* the learning rate is ``η_n = ln 2 / M_{n−1}``: it falls only when the mixture has been worse than its mix losses.

The mix losses sum to at most ``min(L_s, L_a) + ln 2 / η_N`` for any losses, since the learning rate never rises.
Therefore the regret is at most ``Σ δ_n + M_{N−1}`` for any delays and any order of the labels
(:attr:`Mixture.regret_bound`), and :func:`worst_case_regret` bounds this number by the number of labels and the delay.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from regtta.persistence import require_count, require_mapping, require_number, state_error
from regtta.types import FeedbackScores

# With η = 1/(2σ²), weights are posterior probabilities under Gaussian errors of standard deviation σ. The first
# learning rate has σ = 1/8, one standard deviation of outputs whose range is 4 standard deviations to each side.
INITIAL_GAP = 2 * math.log(2) / 8**2
# Largest value of u·s(u)·(1 − s(u)) for the logistic function s, which is 0.22387, rounded up.
_LOGISTIC_SLOPE = 0.224


@dataclass
class Mixture:
    """Weights of two models whose predictions are averaged, updated by one labelled sample at a time.

    Attributes:
        labels: number of labels so far, N.
        source_loss: sum of the losses of the source model.
        adapted_loss: sum of the losses of the adapted model.
        mixture_loss: sum of the losses of the mean with the weights at the time of each prediction.
        gap: ``Σ δ_n``.
        largest_gap: ``M_N``, the largest ``gap`` so far, at least ``INITIAL_GAP``.

    Example:
        >>> mixture = Mixture()
        >>> mixture.weight
        0.5
        >>> mixture.update(source_loss=0.04, adapted_loss=0.01, mixture_loss=0.02)
        >>> round(mixture.weight, 3), mixture.labels
        (0.723, 1)
    """

    labels: int = 0
    source_loss: float = 0.0
    adapted_loss: float = 0.0
    mixture_loss: float = 0.0
    gap: float = 0.0
    largest_gap: float = INITIAL_GAP

    @property
    def learning_rate(self) -> float:
        """Learning rate ``η`` of the next label."""
        return math.log(2) / self.largest_gap

    @property
    def weight(self) -> float:
        """Weight of the adapted model, in ``[0, 1]``; that of the source model is the rest."""
        return math.exp(-_softplus(-self._log_odds))

    @property
    def regret_bound(self) -> float:
        """Upper bound of ``mixture_loss − min(source_loss, adapted_loss)``, for any delays of the labels."""
        return self.gap + self.largest_gap

    @property
    def _log_odds(self) -> float:
        return self.learning_rate * (self.source_loss - self.adapted_loss)

    def update(self, source_loss: float, adapted_loss: float, mixture_loss: float) -> None:
        """Count one labelled sample.

        Args:
            source_loss: loss of the source model, in ``[0, 1]``.
            adapted_loss: loss of the adapted model.
            mixture_loss: loss of the weighted mean, with the weight of the time when the sample was predicted.
        """
        rate, odds = self.learning_rate, self._log_odds
        source, adapted = -_softplus(odds) - rate * source_loss, -_softplus(-odds) - rate * adapted_loss
        mix_loss = -(max(source, adapted) + math.log1p(math.exp(-abs(source - adapted)))) / rate
        self.labels += 1
        self.source_loss += source_loss
        self.adapted_loss += adapted_loss
        self.mixture_loss += mixture_loss
        self.gap += mixture_loss - mix_loss
        self.largest_gap = max(self.largest_gap, self.gap)

    def scores(self) -> FeedbackScores:
        """Return weights, mean losses and the bound per label."""
        count = max(self.labels, 1)
        return FeedbackScores(
            labels=self.labels,
            source_weight=1 - self.weight,
            adapted_weight=self.weight,
            source_loss=self.source_loss / count,
            adapted_loss=self.adapted_loss / count,
            mixture_loss=self.mixture_loss / count,
            regret_bound=self.regret_bound / count,
        )

    def state_dict(self) -> dict[str, int | float]:
        """Return the sums as plain values."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: object, path: str) -> "Mixture":
        """Return a mixture from :meth:`state_dict`; raise a StateError for sums that no labels give."""
        found: Mapping[str, object] = require_mapping(path, state, [item.name for item in fields(cls)])
        labels = require_count(f"{path}/labels", found["labels"])
        sums = {name: require_number(f"{path}/{name}", value) for name, value in found.items() if name != "labels"}
        for name in ("source_loss", "adapted_loss", "mixture_loss"):
            if not 0 <= sums[name] <= labels:
                raise state_error(f"{path}/{name}", f"between 0 and the number of labels, {labels}", sums[name])
        least = max(INITIAL_GAP, sums["gap"])
        if not least <= sums["largest_gap"] <= INITIAL_GAP + labels:
            expected = f"between {least} and {INITIAL_GAP + labels}"
            raise state_error(f"{path}/largest_gap", expected, sums["largest_gap"])
        return cls(labels=labels, **sums)


def worst_case_regret(labels: int, delay: int) -> float:
    """Return an upper bound of the regret after ``labels`` labels, whatever the predictions and labels are.

    With ``N`` labels, the maximum delay ``d`` and ``M_0 = INITIAL_GAP``, the regret is at most

    * ``2 max(M_0, 2 ln 2 + 1)`` for ``d = 0``, independent of N, for the squared error: ``exp(−η (p − y)²)`` is concave
      in ``p`` for ``η ≤ 1/2``, so that no gap is positive once ``M ≥ 2 ln 2``, and each gap is at most 1;
    * ``2 (1 + √(M_0² + (ln 2 / 4)(1 + 2 d) N) + 0.224 d ln(1 + N / M_0))`` for any convex loss: a gap is at most
      ``η_n (1/8 + d/4)`` plus ``0.224 ln(M_{n−1} / M_{n−1−d})``, for the losses and for the changes of the learning
      rate that the weight of a prediction does not know yet.

    Args:
        labels: number of labels N.
        delay: maximum delay d: the largest number of other labels that arrive after a sample was predicted and before
            its own label. If batches of B samples are labelled completely before the next one, it is ``B − 1``.

    Example:
        >>> round(worst_case_regret(10_000, 0), 2), round(worst_case_regret(10_000, 63), 1)
        (4.77, 1308.4)
    """
    spread = math.log(2) / 4 * (1 + 2 * delay) * labels
    delayed = _LOGISTIC_SLOPE * delay * math.log1p(labels / INITIAL_GAP)
    bound = 2 * (1 + math.sqrt(INITIAL_GAP**2 + spread) + delayed)
    return min(bound, 2 * max(INITIAL_GAP, 2 * math.log(2) + 1)) if delay == 0 else bound


def _softplus(value: float) -> float:
    """Return ``ln(1 + exp(value))`` without overflow."""
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))
