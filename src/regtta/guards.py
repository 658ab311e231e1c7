"""What refuses a batch or an update.

A guard is a small frozen type with two questions: ``admits`` before the batch is learned from, and
``judge`` once its loss and gradient are known, before any weight moves. Either answers with ``None``
for yes, or with the reason for no. A refused batch is predicted in eval mode and leaves weights,
running statistics and optimizer as they were.
"""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Outcome:
    """What one step would do: its ``loss`` and the norm of its gradient, where it has them."""

    loss: float | None
    gradient_norm: float | None


@dataclass(frozen=True)
class Guard:
    """Lets everything pass; the guards below each refuse one thing."""

    def admits(self, inputs: Tensor) -> str | None:  # noqa: ARG002 - the question is the same for all
        """Why the batch ``inputs`` (B, ...) must not be learned from, or ``None``."""
        return None

    def judge(self, outcome: Outcome) -> str | None:  # noqa: ARG002 - the question is the same for all
        """Why the step must not be taken, or ``None``."""
        return None


@dataclass(frozen=True)
class FiniteInputs(Guard):
    """Refuses a batch with a NaN or an infinity in it.

    Example:
        >>> from torch import tensor
        >>> FiniteInputs().admits(tensor([[1.0], [float("nan")]]))
        '1 of 2 samples is not finite'
    """

    def admits(self, inputs: Tensor) -> str | None:
        """Count the samples that are not finite."""
        finite = inputs.isfinite()
        if bool(finite.all()):
            return None
        bad = int((~finite.flatten(1).all(dim=1) if inputs.ndim > 1 else ~finite).sum())
        return f"{bad} of {len(inputs)} samples {'is' if bad == 1 else 'are'} not finite"


@dataclass(frozen=True)
class SeveralSamples(Guard):
    """Refuses a batch of fewer than two samples: one has no variance."""

    def admits(self, inputs: Tensor) -> str | None:
        """Count the samples."""
        return None if len(inputs) > 1 else f"a batch of {len(inputs)} has no variance"


@dataclass(frozen=True)
class VariedInputs(Guard):
    """Refuses a batch whose samples are all the same."""

    def admits(self, inputs: Tensor) -> str | None:
        """Compare every sample with the first."""
        same = len(inputs) > 0 and bool((inputs == inputs[0]).all())
        return "all samples are the same" if same else None


@dataclass(frozen=True)
class FiniteStep(Guard):
    """Refuses a step whose loss or gradient is not finite: it could only destroy the weights."""

    def judge(self, outcome: Outcome) -> str | None:
        """Look at both numbers."""
        for name, value in (("loss", outcome.loss), ("gradient", outcome.gradient_norm)):
            if value is not None and not math.isfinite(value):
                return f"the {name} is not finite"
        return None


DEFAULT: tuple[Guard, ...] = (FiniteInputs(), SeveralSamples(), VariedInputs(), FiniteStep())
