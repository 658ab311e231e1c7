"""What SSA and the naive feature alignment share: the loss on Gaussian moments, and its options."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regtta.divergences import METRICS, Metric, alignment_loss, moments_with_memory
from regtta.errors import OptionError
from regtta.methods.base import Batch, GradientMethod, MethodContext, Remember, Rule
from regtta.options import check_bool, check_choice, check_whole
from regtta.state_validation import invalid, require_mapping, require_tensor


@dataclass(frozen=True)
class Alignment:
    """What a batch is compared with, in float64: k dimensions of the source.

    Attributes:
        view: takes features (B, D) to the k dimensions compared, (B, k).
        mean: (k,) the source's mean there.
        variance: (k,) the source's variance there.
        effect: (O, k) how much a step along each dimension moves each output.
    """

    view: Callable[[Tensor], Tensor]
    mean: Tensor
    variance: Tensor
    effect: Tensor


@dataclass(frozen=True, kw_only=True)
class AlignmentMethod(GradientMethod):
    """A method that aligns means and variances of k dimensions with the source's. Abstract.

    With a ``window`` the moments are those of the last so many samples, batches before this one included, so that
    batches too small to have moments of their own can be aligned.
    """

    window: int = 0
    weighting: bool = True
    metric: Metric = "kl"
    unbiased: bool = True
    clip: bool = True

    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_choice("metric", self.metric, METRICS.keys())
        for name in ("weighting", "unbiased", "clip"):
            check_bool(name, getattr(self, name))
        check_whole("window", self.window)
        if self.window == 1:
            raise OptionError("Expected a window of 2 samples or more, or 0 for none: one sample has no variance.")

    @property
    def learns_from_one(self) -> bool:
        """A window remembers the samples before."""
        return self.window > 0

    @abstractmethod
    def alignment(self, context: MethodContext) -> Alignment:
        """The dimensions to compare."""

    def start(self, context: MethodContext) -> Rule:
        """Weigh the dimensions and get ready for batches."""
        return AlignmentRule(self, context)


class AlignmentRule(Rule):
    """``L = Σ_d α_d · D(N(μ_d, σ²_d), N(μˢ_d, λ_d))`` on each batch."""

    def __init__(self, method: AlignmentMethod, context: MethodContext) -> None:
        target = method.alignment(context)
        alpha = significance(target.effect) if method.weighting else torch.ones_like(target.mean)
        self.method = method
        self.view = target.view
        self.dtype = context.dtype
        self.mean, self.variance, self.alpha = (
            values.to(context.device, context.dtype) for values in (target.mean, target.variance, alpha)
        )
        self.past = self.mean.new_empty(0, len(self.mean))

    @property
    def repeats(self) -> bool:
        """Without a window it remembers nothing."""
        return self.method.window == 0

    def update(self, batch: Batch) -> Tensor | Remember:
        """The alignment loss of the batch and the window before it."""
        method = self.method
        values = self.view(batch.features.to(self.dtype))
        past = self.past  # nothing, without a window
        if method.window:
            past = self._past(values, again=batch.again)
            self.past = torch.cat([values.detach(), past])[: method.window]
            least = max(2, method.window // 2)
            if len(self.past) < min(least, method.window):
                return Remember(f"the window holds fewer than {least} samples")
        if len(past) == 0:
            return alignment_loss(
                values, self.mean, self.variance, self.alpha, metric=method.metric, unbiased=method.unbiased
            )
        mean, variance = moments_with_memory(values, past, unbiased=method.unbiased)
        return (self.alpha * METRICS[method.metric](mean, variance, self.mean, self.variance)).sum()

    def _past(self, values: Tensor, *, again: bool) -> Tensor:
        """What the window holds beside ``values``, which it holds already where they come again."""
        past = self.past[len(values) :] if again else self.past
        return past[: max(0, self.method.window - len(values))]

    def state_dict(self) -> dict[str, Any]:
        """The window, the newest first."""
        return {"past": self.past} if self.method.window else {}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` holds a window of at most as many samples as this one."""
        found = require_mapping(path, state, ("past",) if self.method.window else ())
        if found:
            past = require_tensor(f"{path}/past", found["past"], (None, len(self.mean)), self.mean.dtype)
            if len(past) > self.method.window:
                raise invalid(f"{path}/past", f"at most {self.method.window} samples", past)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with that window."""
        if self.method.window:
            self.past = state["past"].to(self.mean)


def significance(effect: Tensor) -> Tensor:
    """(k,) weights ``α_d = 1 + ‖effect_d‖₂`` of dimensions that move the outputs by ``effect`` (O, k).

    Example:
        >>> significance(torch.tensor([[3.0, 0.0], [4.0, 0.0]]))
        tensor([6., 1.])
    """
    norms: Tensor = torch.linalg.vector_norm(effect, dim=0)
    return norms + 1
