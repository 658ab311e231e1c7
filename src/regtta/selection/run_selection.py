"""The selection: adapt every candidate without labels, then compare all of them on the labelled samples."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.errors import BatchError, RegttaError
from regtta.guards import DEFAULT, Guard
from regtta.methods import Method
from regtta.models import BatchReader, FeaturePooling, Inputs, InputSelection, ModelInputs, OutputSelection
from regtta.options import check_choice, check_fraction, check_positive_int
from regtta.selection.candidates import Candidates, read_candidates
from regtta.selection.output_correction import CORRECTIONS, CorrectionKind
from regtta.selection.paired_comparison import RESAMPLES
from regtta.selection.result import Deployment, Selection
from regtta.selection.scoring import LOSSES, Loss, choose, explain, score_candidates
from regtta.statistics import SourceStatistics

MIN_LABELS = 8
# Labels that are further from all predictions, in standard deviations of the source's outputs, have another unit.
MAX_DISTANCE = 20.0

logger = logging.getLogger(__name__)


def select(
    candidates: Candidates | None,
    model: nn.Module,
    source: SourceStatistics | str | Path | None,
    x: object,
    y: Tensor,
    *,
    stream: Iterable[object] | None = None,
    loss: Loss = "squared",
    correct: CorrectionKind = "none",
    confidence: float = 0.95,
    batch_size: int = 64,
    resamples: int = RESAMPLES,
    seed: int = 0,
    head: str | None = None,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
    features: FeaturePooling | None = None,
    guards: Sequence[Guard] = DEFAULT,
    allow_mismatch: bool = False,
) -> Selection:
    """Choose a method by a few labelled target samples, or none if no method is shown to help.

    Every candidate adapts to the same unlabelled stream, without labels. Its model at the end of the stream, frozen,
    predicts the labelled samples, and its losses are compared with those of the unadapted model sample by sample. The
    recommendation is the candidate with the largest mean gain among those whose confidence interval is above zero. The
    intervals hold for all candidates at once (:func:`regtta.selection.compare_losses`), so that it does no harm to try
    many. The labelled samples should be a random sample of the target: neighbours in time are not independent, and the
    intervals would be too narrow.

    All candidates run side by side, so that the stream is read once: memory and time are those of one adapter per
    candidate.

    Args:
        candidates: methods or texts such as ``"ssa:k=25"``, in a list or a dict by name, simple ones first; None for
            :func:`regtta.selection.default_candidates`, of which those that do not fit the model are left out. The
            unadapted model is always among them.
        model: the trained model; never modified.
        source: source statistics, or the file they were saved to; None if no candidate needs them.
        x: labelled samples, at least 8: a batch as for :meth:`regtta.Adapter.adapt`.
        y: their labels, ``(n,)`` or ``(n, O)``.
        stream: batches of unlabelled target data, or one tensor ``(N, ...)`` that is split into batches. By default
            the candidates adapt to ``x``, which suits a test for large effects only: a few batches adapt little.
        loss: ``"squared"`` or ``"absolute"`` errors, see :func:`regtta.selection.sample_losses`.
        correct: ``"offset"`` or ``"affine"`` also scores every candidate with its outputs corrected by least squares
            on the labels, by leave-one-out predictions. Such a candidate must be shown to be better than the unadapted
            model, with and without correction, and than itself without correction.
        confidence: simultaneous coverage of the intervals.
        batch_size: rows per batch for ``x`` and a ``stream`` that is one tensor.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.
        head: the head, as for :class:`regtta.Adapter`, and likewise the following.
        inputs: how a batch becomes the arguments of the model.
        output: which part of what the model returns is the prediction.
        features: function from the head's input to features ``(B, D)``.
        guards: guards of every candidate.
        allow_mismatch: accept statistics of another model or another head.

    Returns:
        The scores, the recommendation and its reason.

    Example:
        >>> import regtta
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        >>> train = torch.randn(400, 3).split(20)
        >>> outputs = [model(batch) for batch in train]  # stands for training
        >>> source = regtta.collect(model, train)
        >>> target = 4 * torch.randn(300, 3) + 2  # a sensor with another gain and offset
        >>> labels = model.eval()((target - 2) / 4).detach()
        >>> chosen = regtta.select(["bn_adapt"], model, source, target[:40], labels[:40], stream=target[40:].split(32))
        >>> chosen.recommended
        'bn_adapt'
        >>> chosen.adapter()
        Adapter(Sequential, bn_adapt, head='3', batches=0, adapted=0)
    """
    check_choice("loss", loss, LOSSES)
    check_choice("correct", correct, CORRECTIONS)
    check_fraction("confidence", confidence)
    check_positive_int("batch_size", batch_size)
    check_positive_int("resamples", resamples)
    methods = read_candidates(candidates)
    labels = _read_labels(y)
    labelled = _read_inputs(model, inputs, x, len(labels))
    source = SourceStatistics.load(source) if isinstance(source, str | Path) else source
    make_adapter = partial(
        _make_adapter,
        model,
        source,
        head=head,
        inputs=inputs,
        output=output,
        features=features,
        guards=guards,
        allow_mismatch=allow_mismatch,
    )
    adapters, skipped = _make_adapters(methods, make_adapter, skip=candidates is None)
    chunks = _split(labelled, batch_size)
    seen = _adapt(adapters, chunks if stream is None else _batches(stream, batch_size))
    predictions = {name: _predict(adapter, chunks) for name, adapter in adapters.items()}
    _check_predictions(next(iter(predictions.values())), labels)
    _warn_of_other_unit(next(iter(adapters.values())), source, next(iter(predictions.values())), labels)
    rows = score_candidates(
        predictions, labels, loss=loss, correct=correct, confidence=confidence, resamples=resamples, seed=seed
    )
    chosen = choose(rows)
    return Selection(
        rows=rows,
        methods={name: methods[name] for name in adapters},
        recommended=chosen.name,
        reason=explain(rows, confidence),
        labels=len(labels),
        stream=seen,
        loss=loss,
        confidence=confidence,
        skipped=skipped,
        deployment=Deployment(adapters[chosen.candidate], make_adapter, labelled, output),
    )


def _read_labels(y: object) -> Tensor:
    """Return labels ``(n, O)``, float64 on the CPU, or raise a BatchError."""
    labels = torch.as_tensor(y).detach().cpu().double()
    if not 1 <= labels.ndim <= 2:
        raise BatchError(
            f"Expected labels of shape (n,) or (n, O), found {tuple(labels.shape)}. Pass one row per labelled sample."
        )
    labels = labels.unsqueeze(1) if labels.ndim == 1 else labels
    if len(labels) < MIN_LABELS:
        raise BatchError(
            f"Expected at least {MIN_LABELS} labelled samples, found {len(labels)}. Label more: 16 to 256, drawn at "
            "random from the target."
        )
    missing = (~labels.isfinite()).any(dim=1).nonzero().flatten().tolist()
    if missing:
        raise BatchError(f"Expected finite labels, found others in rows {_list_rows(missing)}. Leave these rows out.")
    constant = (labels.amax(dim=0) == labels.amin(dim=0)).nonzero().flatten().tolist()
    if constant:
        raise BatchError(
            f"Expected labels that vary, found a constant in output {constant[0]}. Label samples with other values: "
            "equal labels cannot tell a good model from a constant."
        )
    return labels


def _read_inputs(model: nn.Module, selection: InputSelection | None, x: object, labels: int) -> Inputs:
    found = BatchReader(model, selection)(x)
    if len(found) != labels:
        raise BatchError(
            f"Expected one label per sample, found {len(found)} samples in x and {labels} rows of labels in y. Pass "
            "inputs and labels of the same samples, in the same order."
        )
    # Inputs that were selected from a batch must not be read as a batch again.
    return found if selection is None or isinstance(found, ModelInputs) else ModelInputs((found,))


def _split(inputs: Inputs, size: int) -> list[Inputs]:
    return [inputs[start : start + size] for start in range(0, len(inputs), size)]


def _batches(stream: Iterable[object], size: int) -> Iterable[object]:
    if isinstance(stream, Tensor):
        return list(torch.split(stream, size))
    if isinstance(stream, Mapping | str) or not isinstance(stream, Iterable):
        raise BatchError(
            f"Expected stream to be an iterable of batches or one tensor (N, ...), found {type(stream).__name__}. "
            "Pass a list of batches or a DataLoader."
        )
    return stream


def _make_adapter(model: nn.Module, source: SourceStatistics | None, method: Method, **options: object) -> Adapter:
    return Adapter(model, method, source, **options)  # type: ignore[arg-type]


def _make_adapters(
    methods: Mapping[str, Method], make_adapter: Callable[[Method], Adapter], *, skip: bool
) -> tuple[dict[str, Adapter], dict[str, str]]:
    """Return an adapter of each candidate; with ``skip``, those that do not fit the model with the reason instead."""
    adapters: dict[str, Adapter] = {}
    skipped: dict[str, str] = {}
    for name, method in methods.items():
        try:
            adapters[name] = make_adapter(method)
        except RegttaError as error:
            if not skip or not method.adapts:
                raise
            skipped[name] = " ".join(str(error).split())
    return adapters, skipped


def _adapt(adapters: Mapping[str, Adapter], batches: Iterable[object]) -> int:
    """Adapt every candidate to every batch, and return the number of samples."""
    seen = 0
    for batch in batches:
        steps = [adapter.adapt(batch) for adapter in adapters.values()]
        seen += len(steps[0].predictions)
    if seen == 0:
        raise BatchError("The stream has no samples to adapt to. Pass batches of unlabelled target data.")
    return seen


def _predict(adapter: Adapter, chunks: Iterable[Inputs]) -> Tensor:
    """Return predictions ``(n, O)``, float64 on the CPU."""
    found = torch.cat([adapter.predict(chunk).detach().cpu().double() for chunk in chunks])
    return found.unsqueeze(1) if found.ndim == 1 else found


def _check_predictions(unadapted: Tensor, labels: Tensor) -> None:
    """Raise unless the unadapted model gives one finite prediction for each label."""
    if unadapted.shape != labels.shape:
        raise BatchError(
            f"Expected one label for each prediction, found predictions of shape {tuple(unadapted.shape)} and labels "
            f"of shape {tuple(labels.shape)}. Pass one column of y per output, or select the output with output=."
        )
    missing = (~unadapted.isfinite()).any(dim=1).nonzero().flatten().tolist()
    if missing:
        raise BatchError(
            f"The unadapted model's predictions of rows {_list_rows(missing)} are not finite. Leave these rows out of "
            "the labelled samples; their inputs may have missing values."
        )


def _warn_of_other_unit(adapter: Adapter, source: SourceStatistics | None, predictions: Tensor, labels: Tensor) -> None:
    """Log a warning if most labels are far outside the range of the unadapted model's predictions."""
    if source is None or adapter.head is None:
        return
    weight = adapter.source_head().weight.detach().cpu().double()
    if weight.shape != (predictions.shape[1], len(source.mean)):
        return  # the outputs are computed from those of the head
    spread = ((weight @ source.covariance()) * weight).sum(dim=1).clamp_min(0).sqrt()
    outside = torch.maximum(labels - predictions.amax(dim=0), predictions.amin(dim=0) - labels).median(dim=0).values
    far = (outside > MAX_DISTANCE * spread).nonzero().flatten().tolist()
    if far:
        index = far[0]
        logger.warning(
            "Labels of output %d are mostly more than %g standard deviations of the source's outputs away from all "
            "predictions: their median is %.4g, that of the predictions %.4g. Check that labels and predictions have "
            "the same unit and the same scaling.",
            index,
            MAX_DISTANCE,
            labels[:, index].median(),
            predictions[:, index].median(),
        )


def _list_rows(rows: Sequence[int]) -> str:
    return ", ".join(map(str, rows[:5])) + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
