"""Values that an adapter reports, and the base class of callbacks that receive them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

if TYPE_CHECKING:
    from regtta.adapter import Adapter
    from regtta.models import Forward, Inputs


@dataclass(frozen=True)
class Verdict:
    """Decision of method and guards on one batch.

    Attributes:
        learned: True if a step was taken and kept.
        reason: the reason if not, else empty.
        returned: ``"good"`` or ``"source"`` if the model was rolled back to the last good or to the source model.
    """

    learned: bool
    reason: str = ""
    returned: str = ""


@dataclass(frozen=True)
class Diagnostics:
    """Measurements of one step.

    Attributes:
        loss: loss on the batch before the update; ``None`` for a method without a loss.
        gradient_norm: norm of the gradient of that loss over all adapted parameters.
        displacement: relative distance of the parameters from the source model after the step,
            ``‖θ − θ₀‖₂ / ‖θ₀‖₂``.
        verdict: decision on the batch.
    """

    loss: float | None
    gradient_norm: float | None
    displacement: float
    verdict: Verdict


@dataclass(frozen=True, repr=False)
class Step:
    """Result of :meth:`regtta.Adapter.adapt` on one batch.

    Attributes:
        index: number of the batch, from 0.
        predictions: outputs of the forward pass whose loss then updates the model (the paper's online protocol), in
            eval mode if the batch was not learned from.
        diagnostics: measurements of the step.
        excluded_rows: indices of the samples that were excluded from learning, such as those with a NaN. They are
            predicted in eval mode.
        served: whose predictions these are: ``"adapted"``, or ``"source"`` or ``"mixture"`` as chosen with
            ``Adapter(..., serve=...)``. ``diagnostics`` always describe the adapted model.

    Example:
        >>> import torch
        >>> step = Step(3, torch.zeros(64, 1), Diagnostics(0.25, 1.0, 0.1, Verdict(learned=True)))
        >>> step
        Step(index=3, predictions=(64, 1), adapted=True, loss=0.25)
        >>> step.adapted, step.loss, step.reason
        (True, 0.25, '')
    """

    index: int
    predictions: Tensor
    diagnostics: Diagnostics
    excluded_rows: tuple[int, ...] = ()
    served: Literal["adapted", "source", "mixture"] = "adapted"

    @property
    def adapted(self) -> bool:
        """True if the model was updated with this batch."""
        return self.diagnostics.verdict.learned

    @property
    def loss(self) -> float | None:
        """Loss on the batch before the update; ``None`` for a method without a loss."""
        return self.diagnostics.loss

    @property
    def reason(self) -> str:
        """Reason why the model was not updated with this batch; empty if it was."""
        return self.diagnostics.verdict.reason

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss={self.loss:.4g}"
        reason = f", reason={self.reason!r}" if self.reason else ""
        excluded = f", excluded_rows={self.excluded_rows}" if self.excluded_rows else ""
        served = "" if self.served == "adapted" else f", served={self.served!r}"
        shape = tuple(self.predictions.shape)
        return f"Step(index={self.index}, predictions={shape}, adapted={self.adapted}{loss}{reason}{excluded}{served})"


@dataclass(frozen=True)
class FeedbackScores:
    """Weights and mean losses after labels were given to :meth:`regtta.Adapter.feedback`.

    The loss of a sample is its squared error in units of the squared width of the range of the feedback, at most 1,
    averaged over the outputs. Labels are clipped to the range.

    Attributes:
        labels: number of labelled samples so far.
        source_weight: weight of the source model in the mixture, from now on.
        adapted_weight: weight of the adapted model; both sum to 1.
        source_loss: mean loss of the source model; 0 without labels, like the other losses.
        adapted_loss: mean loss of the adapted model.
        mixture_loss: mean loss of the mixture with the weights at the time of each prediction.
        regret_bound: upper bound of ``mixture_loss − min(source_loss, adapted_loss)`` that holds for any stream and any
            delay of the labels.
    """

    labels: int
    source_weight: float
    adapted_weight: float
    source_loss: float
    adapted_loss: float
    mixture_loss: float
    regret_bound: float


@dataclass(frozen=True)
class StepView:
    """Forward passes of one batch by the adapted model and by the source model.

    Attributes:
        step: result of the batch.
        answered: forward pass of the adapted model, which the predictions come from unless ``step.served`` differs.
        source: forward pass of the source model in eval mode; the same object as ``answered`` while the model equals
            the source model.
    """

    step: Step
    answered: "Forward"
    source: "Forward"


class Callback:
    """Base class of objects that follow a stream: ``Adapter(..., callbacks=[...])``. Every method does nothing.

    Callbacks run in the thread that calls :meth:`regtta.Adapter.adapt`, one batch at a time, while other threads may
    predict. They may call the adapter. Another thread that adapts, resets or rolls back waits for the callbacks of the
    batch, so a callback must not wait for such a thread. An error in a callback is raised by ``adapt``; the step is
    kept.

    Class attributes:
        state_key: name of the callback's state in checkpoints; ``None`` if it has no state.

    Example:
        >>> class PrintReasons(Callback):
        ...     def on_step(self, adapter, step):
        ...         if not step.adapted:
        ...             print(step.index, step.reason)
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        >>> adapter = regtta.Adapter(model, regtta.BNAdapt(), callbacks=[PrintReasons()])
        >>> steps = [adapter.adapt(x) for x in (torch.randn(4, 3), torch.randn(1, 3))]
        1 a batch of 1 has no variance
    """

    state_key: ClassVar[str | None] = None

    def on_start(self, adapter: "Adapter") -> None:
        """Handle the start of a stream: the adapter was created or reset."""

    def before_step(self, adapter: "Adapter", inputs: "Inputs") -> None:
        """Handle the arrival of a batch, before anything is done with it.

        Args:
            adapter: the adapter.
            inputs: a tensor ``(B, ...)``, or :class:`regtta.models.ModelInputs` for a model that takes several.
        """

    def on_step(self, adapter: "Adapter", step: Step) -> None:
        """Handle the result of a batch."""

    def wants_view(self, index: int) -> bool:  # noqa: ARG002 - the argument is for subclasses
        """Return True to receive :meth:`on_view` for batch ``index``; by default False.

        A view costs a forward pass of the source model if no guard has computed it.
        """
        return False

    def on_view(self, adapter: "Adapter", view: StepView) -> None:
        """Handle the forward passes of a batch, after :meth:`on_step` of all callbacks."""

    def on_rollback(self, adapter: "Adapter", to: Literal["source", "good"]) -> None:
        """Handle a rollback of the model to the source model or to the last good one."""

    def on_end(self, adapter: "Adapter") -> None:
        """Handle the end of the stream: :meth:`regtta.Adapter.close` was called."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for checkpoints, as tensors and plain values; by default empty."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`; by default, nothing."""
