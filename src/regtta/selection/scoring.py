"""Scores of candidates on labelled samples, and the choice among them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor

from regtta.errors import BatchError
from regtta.metrics import RegressionMetrics
from regtta.options import check_choice
from regtta.selection.paired_comparison import RESAMPLES, PairedComparison, compare_losses

Loss = Literal["squared", "absolute"]
LOSSES: tuple[Loss, ...] = ("squared", "absolute")
# Gains that differ by less, in units of the labels' variance, count as equal.
TIE = 1e-3


@dataclass(frozen=True)
class CandidateScore:
    """Scores of one candidate on the labelled samples, and its comparison with the unadapted model.

    Attributes:
        name: name of the candidate.
        rmse, mae, r2: scores of its predictions, averaged over outputs; NaN if a prediction is not finite.
        gain: mean reduction of the loss against the unadapted model, see :func:`sample_losses`; for squared errors the
            difference of R². 0 for the unadapted model itself.
        low, high: simultaneous confidence interval of the gain.
        p_value: p-value of the gain, adjusted for the number of candidates.
    """

    name: str
    rmse: float
    mae: float
    r2: float
    gain: float
    low: float
    high: float
    p_value: float

    @property
    def helps(self) -> bool:
        """True if the whole interval of the gain is above zero."""
        return self.low > 0

    @property
    def harms(self) -> bool:
        """True if the whole interval of the gain is below zero."""
        return self.high < 0

    @property
    def decision(self) -> str:
        """``"helps"``, ``"harms"`` or ``"not shown to help"``."""
        return "helps" if self.helps else "harms" if self.harms else "not shown to help"

    def to_dict(self) -> dict[str, object]:
        """Return JSON-compatible values, with ``None`` for numbers that are not finite."""
        values = {
            name: None if isinstance(value, float) and not torch.isfinite(torch.tensor(value)) else value
            for name, value in asdict(self).items()
        }
        return values | {"decision": self.decision}


def sample_losses(predictions: Tensor, targets: Tensor, loss: Loss = "squared") -> Tensor:
    """Return the loss of each sample, averaged over outputs, in units of the variation of the labels.

    ``"squared"``: ``mean_o (f_io − y_io)² / var(y_o)``, so that the mean over samples is ``1 − R²``. ``"absolute"``:
    ``mean_o |f_io − y_io| / mean_i |y_io − ȳ_o|``. The division makes outputs of different units comparable.

    Args:
        predictions: ``(n, O)``.
        targets: ``(n, O)``.
        loss: kind of loss.

    Returns:
        Losses ``(n,)``, float64.

    Example:
        >>> targets = torch.tensor([[1.0], [2.0], [3.0]])
        >>> 1 - sample_losses(torch.tensor([[1.0], [2.0], [5.0]]), targets).mean()
        tensor(-1., dtype=torch.float64)
    """
    error, deviation = predictions.double() - targets.double(), targets.double() - targets.double().mean(dim=0)
    if loss == "squared":
        return (error**2 / (deviation**2).mean(dim=0)).mean(dim=1)
    return (error.abs() / deviation.abs().mean(dim=0)).mean(dim=1)


def score_candidates(
    predictions: Mapping[str, Tensor],
    targets: Tensor,
    *,
    loss: Loss = "squared",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[CandidateScore, ...]:
    """Score candidates on labelled samples and compare each with the first of them, the unadapted model.

    A candidate with a prediction that is not finite has an infinite loss: its interval is ``(−∞, −∞)``.

    Args:
        predictions: predictions ``(n, O)`` by name; the first are those of the unadapted model.
        targets: labels ``(n, O)``.
        loss: loss to compare by.
        confidence: simultaneous coverage of the intervals.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.

    Returns:
        One score per candidate, in the order given.

    Example:
        >>> targets = torch.linspace(0, 1, 40)[:, None] ** 2
        >>> rows = score_candidates({"source": targets + targets.sin(), "other": targets + 0.1}, targets)
        >>> [row.decision for row in rows]
        ['not shown to help', 'helps']
    """
    check_choice("loss", loss, LOSSES)
    names = list(predictions)
    for name in names:
        if predictions[name].ndim != 2 or predictions[name].shape != targets.shape:
            raise BatchError(
                f"Expected predictions and labels of the same shape (n, O), found {tuple(predictions[name].shape)} of "
                f"{name!r} and {tuple(targets.shape)}. Pass one row per sample and one column per output in both."
            )
    finite = [name for name in names[1:] if bool(predictions[name].isfinite().all())]
    losses = {name: sample_losses(predictions[name], targets, loss) for name in (names[0], *finite)}
    stacked = torch.stack([losses[name] for name in finite], dim=1) if finite else targets.new_zeros(len(targets), 0)
    compared = dict(
        zip(
            finite,
            compare_losses(losses[names[0]], stacked, confidence=confidence, resamples=resamples, seed=seed),
            strict=True,
        )
    )
    compared[names[0]] = PairedComparison(0.0, 0.0, 0.0, 1.0)
    infinite = PairedComparison(-torch.inf, -torch.inf, -torch.inf, 0.0)
    return tuple(_score(name, predictions[name], targets, compared.get(name, infinite)) for name in names)


def _score(name: str, predictions: Tensor, targets: Tensor, compared: PairedComparison) -> CandidateScore:
    metrics = RegressionMetrics()
    metrics.update(predictions, targets)
    scores = metrics.compute()
    return CandidateScore(
        name, scores.rmse, scores.mae, scores.r2, compared.gain, compared.low, compared.high, compared.p_value
    )


def choose(rows: tuple[CandidateScore, ...]) -> CandidateScore:
    """Return the candidate to recommend: the largest gain among those shown to help, else the first.

    Of gains that differ by less than 0.001 the earlier candidate is taken, so simpler ones come first.

    Example:
        >>> unadapted = CandidateScore("source", 2.0, 1.5, 0.1, 0.0, 0.0, 0.0, 1.0)
        >>> choose((unadapted, CandidateScore("ssa", 1.8, 1.2, 0.3, 0.2, -0.1, 0.5, 0.2))).name
        'source'
    """
    shown = [row for row in rows if row.helps]
    if not shown:
        return rows[0]
    best = max(row.gain for row in shown)
    return next(row for row in shown if row.gain > best - TIE)


def explain(rows: tuple[CandidateScore, ...], confidence: float) -> str:
    """Return one sentence that gives the reason for the recommendation of :func:`choose`."""
    chosen, others = choose(rows), rows[1:]
    level = f"{100 * confidence:g} %"
    if chosen is not rows[0]:
        return (
            f"{chosen.name} has the largest gain over the unadapted model of those that are shown to help: "
            f"{chosen.gain:.3g}, with an interval of {chosen.low:.3g} to {chosen.high:.3g} that holds for all "
            f"candidates at once with {level} confidence."
        )
    if not others:
        return "There is no other candidate."
    best = max(others, key=lambda row: row.gain)
    advice = " More labels narrow it." if best.gain > 0 else ""
    return (
        f"No candidate is shown to help: the largest gain, {best.gain:.3g} by {best.name}, has an interval of "
        f"{best.low:.3g} to {best.high:.3g} at {level} confidence.{advice}"
    )
