"""Values that the adapter reports: :class:`Step`, :class:`Diagnostics` and :class:`Verdict`."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Verdict:
    """Whether a batch was learned from.

    Attributes:
        learned: whether a step was taken, and stands.
        reason: why not, where it does not.
        returned: ``"good"`` or ``"source"`` where the model was taken back to the last good or to its first state.
    """

    learned: bool
    reason: str = ""
    returned: str = ""


@dataclass(frozen=True)
class Diagnostics:
    """What one step did.

    Attributes:
        loss: on the batch, before the update; ``None`` for a method without one.
        gradient_norm: of that loss over all parameters that move.
        displacement: how far the parameters are from where the stream began,
            ``‖θ − θ₀‖₂ / ‖θ₀‖₂``, after the step.
        verdict: whether the batch was learned from.
    """

    loss: float | None
    gradient_norm: float | None
    displacement: float
    verdict: Verdict


@dataclass(frozen=True)
class Step:
    """One batch of a stream.

    Attributes:
        index: of the batch, from 0.
        predictions: from the forward pass whose loss then updates the model (the paper's online
            protocol); from eval mode where the batch was not learned from.
        diagnostics: what learning from it did.
        excluded_rows: indices of the samples that were left out of learning, such as those with a NaN in them. They are
            predicted in eval mode.
    """

    index: int
    predictions: Tensor
    diagnostics: Diagnostics
    excluded_rows: tuple[int, ...] = ()
