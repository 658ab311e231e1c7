"""Scores of candidates on labelled samples, and the choice among them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from regtta.errors import BatchError
from regtta.metrics import RegressionMetrics
from regtta.options import check_choice
from regtta.selection.output_correction import CORRECTIONS, CorrectionKind, OutputCorrection, fit_correction
from regtta.selection.paired_comparison import RESAMPLES, PairedComparison, compare_losses

Loss = Literal["squared", "absolute"]
LOSSES: tuple[Loss, ...] = ("squared", "absolute")
# Gains that differ by less, in units of the labels' variance, count as equal.
TIE = 1e-3


@dataclass(frozen=True)
class CandidateScore:
    """Scores of one candidate on the labelled samples, and its comparison with the unadapted model.

    Attributes:
        name: name of the row: that of the candidate, such as ``"ssa"``, or ``"ssa + affine"`` if it is corrected.
        candidate: name of the candidate.
        correction: correction of the candidate's outputs, if there is one. The scores and the gain are then those of
            leave-one-out predictions: each sample is corrected as the other samples indicate.
        rmse: root mean squared error, averaged over outputs; NaN if a prediction is not finite, as the following.
        mae: mean absolute error.
        r2: coefficient of determination.
        gain: mean reduction of the loss against the unadapted model, see :func:`sample_losses`; for squared errors the
            difference of R². 0 for the unadapted model itself.
        low: lower end of the simultaneous confidence interval of the gain.
        high: its upper end.
        p_value: p-value of the gain, adjusted for the number of comparisons.
        correction_low: lower end of the interval of the gain by the correction, against the same candidate without it;
            None without correction.
        adaptation_low: lower end of the interval of the gain by the adaptation, against the corrected unadapted model;
            None without correction, and for that model itself.
    """

    name: str
    candidate: str
    correction: OutputCorrection | None
    rmse: float
    mae: float
    r2: float
    gain: float
    low: float
    high: float
    p_value: float
    correction_low: float | None = None
    adaptation_low: float | None = None

    @property
    def helps(self) -> bool:
        """True if the intervals of the gain, and of the parts of correction and adaptation in it, are above zero."""
        parts = (self.correction_low, self.adaptation_low)
        return self.low > 0 and all(low is None or low > 0 for low in parts)

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
            name: None if isinstance(value, float) and not math.isfinite(value) else value
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
    correct: CorrectionKind = "none",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[CandidateScore, ...]:
    """Score candidates on labelled samples and compare each with the first of them, the unadapted model.

    With ``correct``, each candidate is scored a second time with its outputs corrected, and that is also compared with
    the candidate as it is and with the corrected unadapted model. All comparisons share one set of simultaneous
    intervals. A candidate with a prediction that is not finite has an infinite loss: its interval is ``(−∞, −∞)``, and
    it is not corrected.

    Args:
        predictions: predictions ``(n, O)`` by name; the first are those of the unadapted model.
        targets: labels ``(n, O)``.
        loss: loss to compare by.
        correct: correction of offset, or offset and scale, see :func:`fit_correction`.
        confidence: simultaneous coverage of the intervals.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.

    Returns:
        One score per candidate, in the order given, then one per corrected candidate.

    Example:
        >>> targets = torch.linspace(0, 1, 40)[:, None] ** 2
        >>> rows = score_candidates({"source": targets + targets.sin(), "other": targets + 0.1}, targets)
        >>> [row.decision for row in rows]
        ['not shown to help', 'helps']
    """
    check_choice("loss", loss, LOSSES)
    check_choice("correct", correct, CORRECTIONS)
    _check_shapes(predictions, targets)
    unadapted = next(iter(predictions))
    finite = {name: values for name, values in predictions.items() if bool(values.isfinite().all())}
    fitted = {name: fit_correction(values, targets, correct) for name, values in finite.items() if correct != "none"}
    corrected = {f"{name} + {correct}": (name, *found) for name, found in fitted.items()}
    outputs = finite | {name: held_out for name, (_, _, held_out) in corrected.items()}
    losses = {name: sample_losses(values, targets, loss) for name, values in outputs.items()}
    pairs = [(name, unadapted) for name in losses]
    pairs += [(name, own) for name, (own, _, _) in corrected.items()]
    pairs += [(name, f"{unadapted} + {correct}") for name, (own, _, _) in corrected.items() if own != unadapted]
    compared = _compare_pairs(losses, pairs, confidence=confidence, resamples=resamples, seed=seed)
    rows = [
        _score(name, values, targets, compared.get((name, unadapted), _INFINITE_LOSS))
        for name, values in predictions.items()
    ]
    for name, (own, correction, held_out) in corrected.items():
        beside = compared.get((name, f"{unadapted} + {correct}"))
        rows.append(
            replace(
                _score(name, held_out, targets, compared[name, unadapted]),
                candidate=own,
                correction=correction,
                correction_low=compared[name, own].low,
                adaptation_low=None if beside is None or own == unadapted else beside.low,
            )
        )
    return tuple(rows)


def _compare_pairs(
    losses: Mapping[str, Tensor], pairs: Sequence[tuple[str, str]], *, confidence: float, resamples: int, seed: int
) -> dict[tuple[str, str], PairedComparison]:
    """Return the comparison of the first of each pair with the second, with intervals that hold for all pairs."""
    after, before = (torch.stack([losses[name] for name in names], dim=1) for names in zip(*pairs, strict=True))
    found = compare_losses(before, after, confidence=confidence, resamples=resamples, seed=seed)
    return dict(zip(pairs, found, strict=True))


_INFINITE_LOSS = PairedComparison(-math.inf, -math.inf, -math.inf, 0.0)


def _check_shapes(predictions: Mapping[str, Tensor], targets: Tensor) -> None:
    for name, values in predictions.items():
        if values.ndim != 2 or values.shape != targets.shape:
            raise BatchError(
                f"Expected predictions and labels of the same shape (n, O), found {tuple(values.shape)} of {name!r} "
                f"and {tuple(targets.shape)}. Pass one row per sample and one column per output in both."
            )


def _score(name: str, predictions: Tensor, targets: Tensor, compared: PairedComparison) -> CandidateScore:
    metrics = RegressionMetrics()
    metrics.update(predictions, targets)
    scores = metrics.compute()
    return CandidateScore(
        name,
        name,
        None,
        rmse=scores.rmse,
        mae=scores.mae,
        r2=scores.r2,
        gain=compared.gain,
        low=compared.low,
        high=compared.high,
        p_value=compared.p_value,
    )


def choose(rows: tuple[CandidateScore, ...]) -> CandidateScore:
    """Return the candidate to recommend: the largest gain among those shown to help, else the first.

    Gains that differ by less than 0.001 count as equal, and the earlier candidate is taken, so simpler ones come first;
    a gain of less than 0.001 is none.

    Example:
        >>> unadapted = CandidateScore("source", "source", None, 2.0, 1.5, 0.1, 0.0, 0.0, 0.0, 1.0)
        >>> choose((unadapted, CandidateScore("ssa", "ssa", None, 1.8, 1.2, 0.3, 0.2, -0.1, 0.5, 0.2))).name
        'source'
    """
    shown = [row for row in rows if row.helps and row.gain > TIE]
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
    if best.helps:
        return f"No candidate helps by more than {TIE}: the largest gain is {best.gain:.3g}, by {best.name}."
    advice = " More labels narrow it." if best.gain > TIE else ""
    return (
        f"No candidate is shown to help: the largest gain, {best.gain:.3g} by {best.name}, has an interval of "
        f"{best.low:.3g} to {best.high:.3g} at {level} confidence.{advice}"
    )
