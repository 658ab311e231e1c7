"""Feature restoration: histograms of every feature dimension and of the outputs.

Eastwood, Mason, Williams and Schölkopf, "Source-Free Adaptation to Measurement Shift via Bottom-Up Feature
Restoration", ICLR 2022, as Adachi et al., ICLR 2025, use it. Changed for regression: the outputs take the place of
the logits.

Our readings, where the paper is silent: Adam on affine parameters; equal bins between the source's least and greatest
value of each dimension, to which values are scaled so that the temperature means the same in every dimension; the
symmetric KL divergence between bin probabilities, with ``epsilon`` added to each, summed over dimensions and outputs;
dimensions whose range on the source is below float32's epsilon of the widest one's are left out, for they have no bins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.divergences import histogram_divergence, soft_histogram
from regtta.errors import StatisticsError
from regtta.features import Forward
from regtta.gathering import Gatherer
from regtta.methods.base import Batch, GradientMethod, MethodContext, Rule
from regtta.options import check_count, check_positive
from regtta.processes import Processes


@dataclass(frozen=True, kw_only=True)
class FeatureRestoration(GradientMethod):
    """Aligns soft-binned histograms of all features and outputs with the source's.

    ``L = Σ_d KL(p_d ‖ q_d) + KL(q_d ‖ p_d)`` over bin probabilities p of the batch and q of the source.

    Args:
        bins: bins a dimension.
        temperature: of the soft binning, as a share of the dimension's range on the source.
        epsilon: added to each bin's probability, since an empty bin has no logarithm.

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
    gathers: ClassVar[str] = "its histograms (2 passes)"

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_count("bins", self.bins)
        check_positive("temperature", self.temperature)
        check_positive("epsilon", self.epsilon)

    def gatherers(self) -> Mapping[str, Gatherer]:
        """Ranges in a first pass over the source, histograms in a second."""
        return {self.name: _Histograms(self.bins, self.temperature)}

    def start(self, context: MethodContext) -> Rule:
        """Take the source's histograms of the dimensions that vary."""
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
            raise StatisticsError(f"The source's ranges are not finite. Collect again with methods=[{self!r}].")
        if source.shape[1] != self.bins or made_with.item() != self.temperature:
            raise StatisticsError(
                f"The source's histograms have {source.shape[1]} bins at temperature {made_with.item()}, not "
                f"{self.bins} at {self.temperature}. Collect again with methods=[{self!r}]."
            )
        return _Restoration(self, context, low, high, source)


class _Histograms(Gatherer):
    passes = 2

    def __init__(self, bins: int, temperature: float) -> None:
        self.bins = bins
        self.temperature = temperature
        self.low = self.high = self.total = torch.empty(0)
        self.count = 0

    def see(self, forward: Forward, number: int) -> None:
        """Widen the range, or add to the histogram."""
        values = restored_values(forward.features, forward.outputs).double()
        if number == 0:
            low, high = values.aminmax(dim=0)
            first = self.low.numel() == 0
            self.low = low if first else torch.minimum(self.low, low)
            self.high = high if first else torch.maximum(self.high, high)
            return
        seen = soft_histogram(values, self.low, self.high, self.bins, self.temperature) * len(values)
        self.total = seen if self.count == 0 else self.total + seen
        self.count += len(values)

    def merge(self, processes: Processes, number: int) -> None:
        """The widest range, or the sum of the histograms."""
        if number == 0:
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
        """Ranges (D+O,) and bin probabilities (D+O, bins)."""
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
        self.varies = varies.nonzero().squeeze(1).to(context.device)  # a mask would have to be read from the device
        self.low, self.high, self.source = (
            values[varies].to(context.device, context.dtype) for values in (low, high, source)
        )

    @property
    def repeats(self) -> bool:
        """It looks at nothing but the batch."""
        return True

    def update(self, batch: Batch) -> Tensor:
        """The divergence of the batch's histograms from the source's."""
        values = restored_values(batch.features, batch.outputs)[:, self.varies].to(self.low.dtype)
        histogram = soft_histogram(values, self.low, self.high, self.method.bins, self.method.temperature)
        return histogram_divergence(histogram, self.source, self.method.epsilon).sum()


def restored_values(features: Tensor, outputs: Tensor) -> Tensor:
    """(B, D+O): features and outputs side by side."""
    return torch.cat([features, outputs.reshape(len(features), -1)], dim=1)
