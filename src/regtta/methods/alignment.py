"""Base classes of SSA and naive feature alignment: the loss on Gaussian moments, its options, and the subspace."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.losses import METRICS, Metric, alignment_loss, moments_with_memory
from regtta.methods.rules import Batch, Buffered, Rule
from regtta.options import DefaultInt, check_bool, check_choice, check_non_negative_int
from regtta.persistence import require_mapping, require_tensor, state_error
from regtta.statistics import Clip, SourceStatistics, Subspace, describe_few_samples

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Alignment:
    """Source moments of the k aligned dimensions, in float64.

    Attributes:
        view: maps features ``(B, D)`` to the aligned dimensions ``(B, k)``.
        mean: source mean, ``(k,)``.
        variance: source variance, ``(k,)``.
        effect: derivative of each output with respect to each aligned dimension, ``(O, k)``.
    """

    view: Callable[[Tensor], Tensor]
    mean: Tensor
    variance: Tensor
    effect: Tensor


@dataclass(frozen=True, kw_only=True)
class AlignmentMethod(GradientMethod):
    """Abstract base of methods that align the means and variances of k dimensions with the source.

    With ``window > 0`` the moments are estimated over the last ``window`` samples of the stream instead of the batch
    alone, so that batches too small for an estimate of their own can be aligned.
    """

    window: int = 0
    weighting: bool = True
    metric: Metric = "kl"
    unbiased: bool = True
    clip: Clip = True

    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_choice("metric", self.metric, METRICS.keys())
        for name in ("weighting", "unbiased"):
            check_bool(name, getattr(self, name))
        if self.clip != "null":
            check_bool("clip", self.clip)
        check_non_negative_int("window", self.window)
        if self.window == 1:
            raise OptionError("Expected window to be 0 (disabled) or at least 2, found 1: one sample has no variance.")

    @property
    def supports_single_samples(self) -> bool:
        """True if a window retains previous samples."""
        return self.window > 0

    @abstractmethod
    def alignment(self, context: MethodContext) -> Alignment:
        """Return the dimensions to align and their source moments."""

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream."""
        return AlignmentRule(self, context)


class AlignmentRule(Rule):
    """Alignment loss ``L = Σ_d α_d · D(N(μ_d, σ²_d), N(μˢ_d, λ_d))`` of each batch."""

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
    def capturable(self) -> bool:
        """True without a window: the rule is then stateless."""
        return self.method.window == 0

    def update(self, batch: Batch) -> Tensor | Buffered | None:
        """Return the alignment loss of the batch together with the window, or ``Buffered`` while the window fills."""
        method = self.method
        values = self.view(batch.features.to(self.dtype))
        past = self.past  # empty without a window
        if method.window:
            past = self._past(values, repeated=batch.repeated)
            self.past = torch.cat([values.detach(), past])[: method.window]
            least = max(2, method.window // 2)
            if len(self.past) < min(least, method.window):
                return Buffered(f"the window holds fewer than {least} samples")
        if len(past) == 0:
            return alignment_loss(
                values, self.mean, self.variance, self.alpha, metric=method.metric, unbiased=method.unbiased
            )
        mean, variance = moments_with_memory(values, past, unbiased=method.unbiased)
        return (self.alpha * METRICS[method.metric](mean, variance, self.mean, self.variance)).sum()

    def _past(self, values: Tensor, *, repeated: bool) -> Tensor:
        """Return the window without ``values``, ``(n, k)``, so that no sample counts twice.

        A further step on the same batch (``repeated``) finds its samples at the front of the window.
        """
        past = self.past[len(values) :] if repeated else self.past
        return past[: max(0, self.method.window - len(values))]

    def state_dict(self) -> dict[str, Any]:
        """Return the window, newest samples first."""
        return {"past": self.past} if self.method.window else {}

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError unless ``state`` holds a window of at most ``window`` samples."""
        found = require_mapping(path, state, ("past",) if self.method.window else ())
        if found:
            past = require_tensor(f"{path}/past", found["past"], (None, len(self.mean)), self.mean.dtype)
            if len(past) > self.method.window:
                raise state_error(f"{path}/past", f"at most {self.method.window} samples", past)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the window from :meth:`state_dict`."""
        if self.method.window:
            self.past = state["past"].to(self.mean)


def significance(effect: Tensor) -> Tensor:
    """Return the weights ``α_d = 1 + ‖effect_d‖₂``, ``(k,)``.

    Args:
        effect: derivative of each output with respect to each dimension, ``(O, k)``.

    Example:
        >>> significance(torch.tensor([[3.0, 0.0], [4.0, 0.0]]))
        tensor([6., 1.])
    """
    norms: Tensor = torch.linalg.vector_norm(effect, dim=0)
    return norms + 1


def leading_directions(source: SourceStatistics, k: int | Literal["auto"], clip: Clip) -> Subspace:
    """Return the ``k`` leading directions of the source features, of those that ``clip`` admits.

    Args:
        source: the source statistics.
        k: number of directions; ``"auto"`` is the rank. A larger number than ``clip`` admits is reduced with a logged
            warning, a :class:`~regtta.options.DefaultInt` without.
        clip: admitted directions, see :meth:`SourceStatistics.top`.

    Example:
        >>> import regtta
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 1))
        >>> source = regtta.collect(net, [torch.randn(50, 3)])
        >>> [leading_directions(source, k, "null").basis.shape[1] for k in (2, DefaultInt(100))]
        [2, 3]
    """
    return source.top(min(k, source.directions(clip)) if isinstance(k, DefaultInt) else k, clip=clip)


def subspace_alignment(subspace: Subspace, context: MethodContext) -> Alignment:
    """Return the directions of ``subspace`` as dimensions to align; the source has mean 0 and variances λ in them.

    Logs a warning if the source statistics are of too few samples for as many directions.
    """
    few = describe_few_samples(context.require_source(), len(subspace.variances))
    if few:
        logger.warning("%s", few)
    return Alignment(
        view=projection(subspace.to(context.device, context.dtype)),
        mean=torch.zeros_like(subspace.variances),
        variance=subspace.variances,
        effect=context.require_head().weight.detach().cpu().double() @ subspace.basis,
    )


def projection(subspace: Subspace) -> Callable[[Tensor], Tensor]:
    """Return the function ``z ↦ (z − μ) V`` of features ``(B, D)``, to use as the ``view`` of an :class:`Alignment`."""
    mean, basis = subspace.mean, subspace.basis
    return lambda features: (features - mean) @ basis
