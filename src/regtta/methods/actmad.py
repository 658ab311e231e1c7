"""ActMAD: alignment of the activations of all normalisation layers, location by location.

Mirza, Jané Soneira, Lin, Kozinski, Possegger and Bischof, "ActMAD: Activation Matching to Align Distributions for
Test-Time-Training", CVPR 2023. Applies to regression unchanged, since it uses neither labels nor outputs.

Choices: the distance is averaged over the activations of a layer and summed over layers; variances are unbiased. By
default BatchNorm normalises as on the source, since outputs that are normalised by the batch have the moments of the
source whatever the shift. Each layer counts with its first call in a forward pass.

The source statistics hold one mean and one variance in float32 for every activation of every normalisation layer,
whatever the number of samples: those of a ResNet-50 at 224 × 224 pixels take about 90 MB. With ``per_location=False``
they hold one mean and one variance for every channel, for inputs of varying size or to save memory.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regtta.errors import BatchError, ModelError, StatisticsError
from regtta.execution import Communicator
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.rules import Batch, Rule
from regtta.models import BatchNormMode, Forward, LayerOutputs, normalisation_layers
from regtta.options import check_bool
from regtta.statistics import StatisticsCollector, moments_device


@dataclass(frozen=True, kw_only=True)
class ActMAD(GradientMethod):
    """Alignment of mean and variance of every activation behind the normalisation layers with the source.

    ``L = Σ_layers mean_a (|μ_a − μˢ_a| + |σ²_a − σˢ²_a|)`` over the activations a of a layer.

    Args:
        per_location: an activation is a channel at one location of an image or a sequence; otherwise a channel, with
            moments over samples and locations. The same for tables.

    Example:
        >>> import torch, regtta
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).eval()
        >>> source = regtta.collect(net, [torch.randn(100, 3)], methods=[ActMAD()])
        >>> regtta.Adapter(net, ActMAD(), source).adapt(torch.randn(20, 3) + 1).adapted
        True
    """

    per_location: bool = True
    batch_norm: BatchNormMode = "source"

    name: ClassVar[str] = "actmad"
    paper: ClassVar[str] = "Mirza et al., CVPR 2023"
    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True
    extra_statistics: ClassVar[str] = "means and variances of activations"

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_bool("per_location", self.per_location)

    def statistics_collectors(self) -> Mapping[str, StatisticsCollector]:
        """Return the collector of the moments of all activations."""
        return {self.name: _ActivationMoments(self.per_location)}

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, after validating the source statistics."""
        by_location = bool(context.extra(self.name, "per_location").item())
        if by_location != self.per_location:
            raise StatisticsError(
                f"The source statistics of activations were collected with per_location={by_location}, not "
                f"{self.per_location}. Collect again with methods=[{self!r}]."
            )
        source = context.require_source().extras
        layers = _layers(context.model)
        known = {name: layer for name, layer in layers.items() if f"{self.name}/mean/{name}" in source}
        moments = {
            name: tuple(
                context.extra(self.name, f"{key}/{name}").to(context.device, context.dtype)
                for key in ("mean", "variance")
            )
            for name in known
        }
        return _Activations(known, moments, by_location)


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the normalisation layers by name, or raise a ModelError if there are none."""
    layers = normalisation_layers(model)
    if not layers:
        raise ModelError(
            f"{type(model).__name__} has no normalisation layer, behind which actmad compares activations. Use another "
            "method, such as ssa."
        )
    return layers


def by_sample(name: str, values: Tensor, samples: int) -> Tensor:
    """Return the outputs of a layer as ``(B, L)``, one row per sample; a layer may see several rows of each sample."""
    if values.ndim == 0 or len(values) % max(1, samples):
        raise ModelError(
            f"Expected outputs (B, ...) of the normalisation layer {name!r} for a batch of {samples}, found "
            f"{tuple(values.shape)}: actmad compares them by sample. Use another method, such as ssa."
        )
    return values.reshape(max(1, samples), -1)[:samples]


def by_channel(layer: nn.Module, values: Tensor) -> Tensor:
    """Return outputs of a normalisation layer as rows of channels, ``(N, C)``.

    Channels are the second dimension for layers that say how many there are, otherwise the last dimensions.

    Example:
        >>> by_channel(nn.BatchNorm2d(3), torch.zeros(2, 3, 4, 4)).shape
        torch.Size([32, 3])
        >>> by_channel(nn.LayerNorm(4), torch.zeros(2, 3, 4)).shape
        torch.Size([6, 4])
    """
    if hasattr(layer, "num_features") or hasattr(layer, "num_channels"):
        return values.movedim(1, -1).flatten(0, -2)
    last = len(getattr(layer, "normalized_shape", (None,)))
    return values.flatten(values.ndim - last).flatten(0, -2)


class _ActivationMoments(StatisticsCollector):
    """Running mean and sum of squared deviations of the activations of every layer, in float64."""

    def __init__(self, per_location: bool) -> None:
        self.per_location = per_location
        self.layers: dict[str, nn.Module] = {}
        self.outputs = LayerOutputs({})
        self.counts: dict[str, int] = {}
        self.means: dict[str, Tensor] = {}
        self.scatters: dict[str, Tensor] = {}

    def recording(self, model: nn.Module) -> AbstractContextManager[object]:
        """Return the recorder of the outputs of the normalisation layers."""
        self.layers = _layers(model)
        self.outputs = LayerOutputs(self.layers)
        return self.outputs

    def update(self, forward: Forward, pass_index: int) -> None:  # noqa: ARG002 - there is one pass
        """Add the recorded outputs by the update of Chan, Golub and LeVeque."""
        for name, values in self.outputs.values.items():
            samples = len(forward.outputs)
            rows = by_sample(name, values, samples) if self.per_location else by_channel(self.layers[name], values)
            rows = rows.to(moments_device(rows.device), torch.float64)
            mean = rows.mean(dim=0)
            scatter = (rows - mean).square().sum(dim=0)
            before = self.counts.get(name, 0)
            count = before + len(rows)
            if before:
                _check_size(name, len(mean), len(self.means[name]))
                gap = mean - self.means[name]
                scatter = self.scatters[name] + scatter + gap.square() * (before * len(rows) / count)
                mean = self.means[name] + gap * (len(rows) / count)
            self.counts[name], self.means[name], self.scatters[name] = count, mean, scatter
        self.outputs.values.clear()

    def merge(self, processes: Communicator, pass_index: int) -> None:  # noqa: ARG002 - there is one pass
        """Merge the moments of all processes, each corrected to the common mean."""
        if processes.size == 1:
            return
        for name in self.layers:
            own = self.counts.get(name, 0)
            width = int(processes.reduce(torch.tensor(len(self.means[name]) if own else 0), "max"))
            count = int(processes.reduce(torch.tensor(own)))
            if count == 0:
                continue
            nothing = torch.zeros(width, dtype=torch.float64)
            mean, scatter = (self.means[name], self.scatters[name]) if own else (nothing, nothing)
            fits = int(processes.reduce(torch.tensor(int(len(mean) == width)), "min"))
            _check_size(name, width, width if fits else len(mean))
            common = processes.reduce(mean * (own / count))
            self.scatters[name] = processes.reduce(scatter + (mean - common).square() * own)
            self.counts[name], self.means[name] = count, common

    def result(self) -> dict[str, Tensor]:
        """Return the mean and the unbiased variance of each activation of each layer that ran."""
        found = {"per_location": torch.tensor([float(self.per_location)])}
        for name, count in self.counts.items():
            found[f"mean/{name}"] = self.means[name].float()
            found[f"variance/{name}"] = (self.scatters[name] / max(1, count - 1)).float()
        return found


def _check_size(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise BatchError(
            f"Expected {expected} activations of each sample at the normalisation layer {name!r}, as before, found "
            f"{found}: the inputs differ in size. Use ActMAD(per_location=False), in collect as well."
        )


class _Activations(Rule):
    def __init__(
        self, layers: Mapping[str, nn.Module], moments: Mapping[str, tuple[Tensor, ...]], per_location: bool
    ) -> None:
        self.layers = layers
        self.moments = moments
        self.per_location = per_location
        self.outputs = LayerOutputs(layers)

    @property
    def capturable(self) -> bool:
        """True: the rule is stateless between steps."""
        return True

    @property
    def recordings(self) -> tuple[AbstractContextManager[object], ...]:
        """Recorder of the outputs of the normalisation layers."""
        return (self.outputs,)

    def update(self, batch: Batch) -> Tensor:
        """Return the distance of the moments of all activations to those of the source."""
        losses = [self._distance(name, values, batch) for name, values in self.outputs.values.items()]
        self.outputs.values.clear()  # the graph must not outlive the step
        return torch.stack(losses).sum()

    def _distance(self, name: str, values: Tensor, batch: Batch) -> Tensor:
        mean0, variance0 = self.moments[name]
        rows = batch.gather(by_sample(name, values, len(batch.inputs))).to(mean0.dtype)
        if not self.per_location:
            rows = by_channel(self.layers[name], rows.reshape(-1, *values.shape[1:]))
        _check_size(name, rows.shape[1], len(mean0))
        mean = rows.mean(dim=0)
        variance = (rows - mean).square().sum(dim=0) / (len(rows) - 1)
        return ((mean - mean0).abs() + (variance - variance0).abs()).mean()
