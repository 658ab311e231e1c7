"""Feature restoration: alignment of histograms of all feature dimensions and outputs.

Eastwood, Mason, Williams and Schölkopf, "Source-Free Adaptation to Measurement Shift via Bottom-Up Feature
Restoration", ICLR 2022, as used by Adachi et al., ICLR 2025. Changed for regression: outputs replace logits.

Choices where the paper gives no details: Adam on affine parameters; bins of equal width over the source range of each
dimension, with values scaled to that range so that the temperature is comparable between dimensions; symmetric KL
divergence between bin probabilities, with ``epsilon`` added to each, summed over dimensions and outputs. Dimensions
whose source range is below float32's epsilon times the largest range are excluded, as bins of zero width are undefined.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.errors import StatisticsError
from regtta.execution import Communicator
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.losses import histogram_divergence, soft_histogram
from regtta.methods.rules import Batch, Rule
from regtta.models import Forward
from regtta.options import check_positive, check_positive_int
from regtta.statistics import StatisticsCollector


@dataclass(frozen=True, kw_only=True)
class FeatureRestoration(GradientMethod):
    """Alignment of soft-binned histograms of all features and outputs with the source.

    ``L = Σ_d KL(p_d ‖ q_d) + KL(q_d ‖ p_d)`` with bin probabilities p of the batch and q of the source.

    Args:
        bins: number of bins per dimension.
        temperature: of the soft binning, as a fraction of the source range of the dimension.
        epsilon: added to every bin probability to avoid the logarithm of zero.

    Example:
        >>> FeatureRestoration().bins
        8
    """

    bins: int = 8
    temperature: float = 0.01
    epsilon: float = 1e-8
    lr: float = 1e-4

    name: ClassVar[str] = "feature_restoration"
    paper: ClassVar[str] = "Eastwood et al., ICLR 2022"
    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True
    extra_statistics: ClassVar[str] = "its histograms (2 passes)"

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_positive_int("bins", self.bins)
        check_positive("temperature", self.temperature)
        check_positive("epsilon", self.epsilon)

    def statistics_collectors(self) -> Mapping[str, StatisticsCollector]:
        """Return the collector of ranges (first pass over the source) and histograms (second pass)."""
        return {self.name: _Histograms(self.bins, self.temperature)}

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, after validating the source histograms."""
        low, high, source, made_with = (
            context.extra(self.name, key) for key in ("low", "high", "probabilities", "temperature")
        )
        wide = max(low.numel(), context.require_source().dimensions)
        if not (low.shape == high.shape == (wide,) and source.shape[:-1] == (wide,) and made_with.numel() == 1):
            raise StatisticsError(
                f"Expected ranges (n,) and histograms (n, bins) of at least {wide} features and outputs, found "
                f"{tuple(low.shape)}, {tuple(high.shape)} and {tuple(source.shape)}. Collect again with "
                f"methods=[{self!r}]."
            )
        if not bool((high - low).isfinite().all()):
            raise StatisticsError(f"The source ranges are not finite. Collect again with methods=[{self!r}].")
        if source.shape[1] != self.bins or made_with.item() != self.temperature:
            raise StatisticsError(
                f"The source histograms have {source.shape[1]} bins at temperature {made_with.item()}, not "
                f"{self.bins} at {self.temperature}. Collect again with methods=[{self!r}]."
            )
        return _Restoration(self, context, low, high, source)


class _Histograms(StatisticsCollector):
    passes = 2

    def __init__(self, bins: int, temperature: float) -> None:
        self.bins = bins
        self.temperature = temperature
        self.low = self.high = self.total = torch.empty(0)
        self.count = 0

    def update(self, forward: Forward, pass_index: int) -> None:
        """Update the range in the first pass and the histogram in the second."""
        values = features_and_outputs(forward.features, forward.outputs).double()
        if pass_index == 0:
            low, high = values.aminmax(dim=0)
            first = self.low.numel() == 0
            self.low = low if first else torch.minimum(self.low, low)
            self.high = high if first else torch.maximum(self.high, high)
            return
        seen = soft_histogram(values, self.low, self.high, self.bins, self.temperature) * len(values)
        self.total = seen if self.count == 0 else self.total + seen
        self.count += len(values)

    def merge(self, processes: Communicator, pass_index: int) -> None:
        """Merge the ranges or the histograms of all processes."""
        if pass_index == 0:
            width = int(processes.reduce(torch.tensor(len(self.low)), "max"))
            if len(self.low) == 0:
                self.low = torch.full((width,), torch.inf, dtype=torch.float64)
                self.high = -self.low
            self.low, self.high = processes.reduce(self.low, "min"), processes.reduce(self.high, "max")
            return
        if self.count == 0:
            self.total = torch.zeros(len(self.low), self.bins, dtype=torch.float64)
        self.total = processes.reduce(self.total)
        self.count = int(processes.reduce(torch.tensor(self.count)))

    def result(self) -> dict[str, Tensor]:
        """Return ranges ``(D+O,)`` and bin probabilities ``(D+O, bins)``."""
        return {
            "low": self.low,
            "high": self.high,
            "probabilities": self.total / self.count,
            "temperature": torch.tensor([self.temperature], dtype=torch.float64),
        }


class _Restoration(Rule):
    def __init__(
        self, method: FeatureRestoration, context: MethodContext, low: Tensor, high: Tensor, source: Tensor
    ) -> None:
        ranges = high - low
        varies = ranges > torch.finfo(torch.float32).eps * ranges.max()
        self.method = method
        # Indices rather than a mask, which would have to be copied from the device at every step.
        self.varies = varies.nonzero().squeeze(1).to(context.device)
        self.low, self.high, self.source = (
            values[varies].to(context.device, context.dtype) for values in (low, high, source)
        )

    @property
    def capturable(self) -> bool:
        """True: the rule is stateless."""
        return True

    def update(self, batch: Batch) -> Tensor:
        """Return the divergence between the histograms of batch and source."""
        values = features_and_outputs(batch.features, batch.outputs)[:, self.varies].to(self.low.dtype)
        histogram = soft_histogram(values, self.low, self.high, self.method.bins, self.method.temperature)
        return histogram_divergence(histogram, self.source, self.method.epsilon).sum()


def features_and_outputs(features: Tensor, outputs: Tensor) -> Tensor:
    """Return features and outputs concatenated, ``(B, D+O)``."""
    return torch.cat([features, outputs.reshape(len(features), -1)], dim=1)
