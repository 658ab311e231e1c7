"""Collection of source statistics in streaming passes over the source data."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.utils.data import DataLoader

from regtta.errors import BatchError, ModelError, OptionError, StatisticsError
from regtta.execution import Communicator, make_communicator, sync_errors
from regtta.models import (
    BatchReader,
    FeatureModel,
    FeaturePooling,
    Forward,
    Head,
    Inputs,
    InputSelection,
    OutputSelection,
    check_model,
    check_output_selection,
    check_pooling,
    find_head,
    fingerprint,
    inspect_batch_norm,
    model_device,
    private_copy,
)
from regtta.statistics.collectors import HasCollectors, StatisticsCollector
from regtta.statistics.feature_checks import FeatureChecks
from regtta.statistics.input_moments import InputCovariance, InputMoments, check_column_count, check_column_names
from regtta.statistics.moments import Moments, RunningMoments, all_reduce_moments
from regtta.statistics.source import SourceStatistics
from regtta.statistics.source_ranges import FurthestFeatures, InputRanges


def collect(
    model: nn.Module,
    loader: Iterable[object],
    *,
    head: str | None = None,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
    features: FeaturePooling | None = None,
    methods: Sequence[HasCollectors] = (),
    columns: Sequence[str] | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[int], None] | None = None,
    process_group: "dist.ProcessGroup | None" = None,
) -> SourceStatistics:
    """Collect the statistics of the source features of ``model`` over ``loader``, in one streaming pass.

    Runs in eval mode on a copy of the model; the model itself is not modified. Memory use does not depend on the
    number of samples.

    Args:
        model: a trained model that ends in a linear head.
        loader: iterable of batches ``x``, ``(x, y)`` or dicts; targets are dropped.
        head: the head, such as ``"fc"`` or ``"score[last]"`` (see :mod:`regtta.models.heads`); ``None`` finds it by
            forward passes on the first batch.
        inputs: how a batch becomes the arguments of the model: a key, an index, a list of them, or a callable from a
            batch to ``(args, kwargs)``; by default found from the parameters of ``model.forward``.
        output: which part of what the model returns is the prediction: a key, an index, or a callable.
        features: function from the head's input, such as ``(B, T, D)``, to features ``(B, D)``; by default features are
            pooled as the model pools the outputs of its head.
        methods: methods whose additional source statistics to collect. Feature restoration needs a second pass over
            the data, and therefore a loader that can be iterated again.
        columns: names of the columns of the inputs ``(B, C)``, in order, to store with the statistics.
        device: device to run on; ``None`` uses the model's device.
        progress: callback, called after each batch with the number of samples seen so far over all passes.
        process_group: process group for distributed collection, such as ``torch.distributed.group.WORLD``. Each process
            passes the same model and its own shard of the data, which may be empty; all return the statistics of the
            whole. Processes synchronise only at the end of each pass, and an error in one is raised in all.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        >>> source = regtta.collect(model, torch.randn(100, 3).split(10))
        >>> source.count, source.head, source.basis.shape
        (100, '2', torch.Size([8, 8]))
    """
    processes = make_communicator(process_group)
    with sync_errors(processes):
        _check_loader(loader)
        _check_methods(methods)
        check_model(model)
        interface = _Interface(BatchReader(model, inputs), check_output_selection(output), check_pooling(features))
        source_features = _SourceFeatures(model, head, interface, device, check_column_names(columns))
        collectors = _Collectors(methods, source_features.device)
        collectors.check(processes, loader)
    processes.check_same("model", source_features.fingerprint)
    processes.check_same("list of columns", repr(source_features.columns))
    processes.check_same("list of methods to collect for", ", ".join(map(_describe_method, methods)))
    _run_passes(loader, source_features, collectors, processes, progress)
    source = source_features.statistics(collectors.moments.merged, collectors.extras())
    input_moments = source_features.input_moments.all_reduce(processes)
    return dataclasses.replace(
        source,
        input_ranges=source_features.ranges.all_reduce(processes),
        columns=source_features.columns,
        input_mean=input_moments.mean,
        input_variance=input_moments.variance,
        input_count=input_moments.count,
        input_covariance=source_features.input_covariance.all_reduce(
            processes, source_features.device, input_moments.variance
        ),
        largest_feature_norm=float(source.whitened_norms(collectors.furthest.rows).max()),
    )


def _run_passes(
    loader: Iterable[object],
    features: "_SourceFeatures",
    collectors: "_Collectors",
    processes: Communicator,
    progress: Callable[[int], None] | None,
) -> None:
    """Update all collectors in their passes over ``loader`` and merge them across processes after each pass."""
    counts = [0] * collectors.passes
    for pass_index in range(collectors.passes):
        active = collectors.in_pass(pass_index)
        with sync_errors(processes):
            for forward in features.over(loader, active):
                for collector in active:
                    collector.update(forward, pass_index)
                counts[pass_index] += len(forward.features)
                if progress is not None:
                    progress(sum(counts))
            _check_count(pass_index, counts[pass_index], counts[0])
        features.input_moments.finish()
        features.input_covariance.finish()
        features.agree_on_head(processes)
        for collector in active:
            collector.merge(processes, pass_index)


class _Collectors:
    """Gatherers of one collection: feature moments, furthest features and those requested by methods.

    Attributes:
        passes: number of passes over the source data that the collectors need.
    """

    def __init__(self, methods: Sequence[HasCollectors], device: torch.device) -> None:
        self.moments, self.furthest = _FeatureMoments(device), FurthestFeatures(device)
        self._extra = {
            name: collector for method in methods for name, collector in method.statistics_collectors().items()
        }
        self._all: list[StatisticsCollector] = [self.moments, self.furthest, *self._extra.values()]
        self.passes = max(collector.passes for collector in self._all)

    def check(self, processes: Communicator, loader: Iterable[object]) -> None:
        """Raise unless all collectors can run in ``processes`` and ``loader`` allows the number of passes."""
        for collector in self._all:
            collector.check(processes)
        _check_passes(loader, self.passes, self._extra)

    def in_pass(self, pass_index: int) -> list[StatisticsCollector]:
        """Return the collectors that take part in pass ``pass_index``."""
        return [collector for collector in self._all if pass_index < collector.passes]

    def extras(self) -> dict[str, Tensor]:
        """Return the tensors collected for methods, by ``"method/name"``."""
        return {f"{name}/{key}": value for name, g in self._extra.items() for key, value in g.result().items()}


class _FeatureMoments(StatisticsCollector):
    """Moments of the features, part of every collection."""

    merged: Moments

    def __init__(self, device: torch.device) -> None:
        self._running = RunningMoments()
        self._device = device

    def update(self, forward: Forward, pass_index: int) -> None:  # noqa: ARG002 - there is one pass
        """Update with the features of a batch."""
        self._running.update(forward.features)

    def merge(self, processes: Communicator, pass_index: int) -> None:  # noqa: ARG002 - there is one pass
        """Merge the moments of all processes into :attr:`merged`."""
        moments = all_reduce_moments(self._running.finish(), processes, self._device)
        if moments is None:
            raise StatisticsError(
                "The source loader gave no samples. Pass one that yields batches of inputs; an iterator "
                "that was consumed before is empty."
            )
        self.merged = moments

    def result(self) -> dict[str, Tensor]:
        """Return no tensors: the statistics are computed from :attr:`merged`."""
        return {}


@dataclass(frozen=True)
class _Interface:
    """How batches become inputs, what the prediction is, and how features are pooled."""

    read: BatchReader
    output: OutputSelection | None
    pooling: FeaturePooling | None


class _SourceFeatures:
    """Features of a private copy of the model, computed batch by batch."""

    def __init__(
        self,
        model: nn.Module,
        head: str | None,
        interface: _Interface,
        device: torch.device | str | None,
        columns: tuple[str, ...] = (),
    ) -> None:
        self._model = private_copy(model).eval()
        self.fingerprint = fingerprint(self._model)
        self.device = model_device(self._model) if device is None else _move(self._model, device)
        self._interface = interface
        self._named = None if head is None else str(Head(self._model, head).layout)
        self._forward: FeatureModel | None = None
        self._head = ""
        self.columns = columns
        self.checks = FeatureChecks(_check_batch_norm(self._model))
        self.ranges = InputRanges()
        self.input_moments = InputMoments()
        self.input_covariance = InputCovariance()

    @torch.no_grad()
    def over(self, loader: Iterable[object], collectors: Sequence[StatisticsCollector]) -> Iterator[Forward]:
        """Yield the forward passes of one pass over ``loader``; raise a StatisticsError if features are unusable.

        Each of the ``collectors`` may record the outputs of layers.
        """
        recordings = [collector.recording(self._model) for collector in collectors]
        # Only torch's DataLoader allocates each pinned batch anew; other loaders may overwrite their pinned buffers.
        pinned = self.device.type == "cuda" and isinstance(loader, DataLoader) and loader.pin_memory
        for index, batch in enumerate(loader):
            inputs = self._interface.read(batch).to(self.device, non_blocking=pinned)
            if len(inputs) == 0:
                continue
            check_column_count(self.columns, inputs)
            if self._forward is None:
                self._forward = self._feature_model(self._find_head(inputs))
            with ExitStack() as stack:
                for recording in recordings:
                    stack.enter_context(recording)
                found = self._forward(inputs)
            forward = Forward(found.flat_features, found.outputs)
            self.ranges.update(inputs)
            self.input_moments.update(inputs)
            self.input_covariance.update(inputs)
            self.checks.update(inputs, forward, index)
            yield forward
        self.checks.check_finite()

    def _feature_model(self, head: str) -> FeatureModel:
        return FeatureModel(self._model, head, output=self._interface.output, pooling=self._interface.pooling)

    def _find_head(self, inputs: Inputs) -> str:
        interface = self._interface
        named, output, pooling = self._named, interface.output, interface.pooling
        return find_head(self._model, inputs, named=named, output=output, pooling=pooling)

    def agree_on_head(self, processes: Communicator) -> None:
        """Adopt the head found by other processes if no batch arrived here; raise if the heads differ."""
        mine = self._named if self._forward is None else self._forward.head_name
        found = processes.first(mine)
        self._head = mine or found or ""
        processes.check_same("head", self._head)

    def statistics(self, moments: Moments, extras: dict[str, Tensor]) -> SourceStatistics:
        """Return the source statistics, with the fingerprint of the model they were collected on."""
        found = SourceStatistics.from_moments(
            moments,
            head=self._head,
            fingerprint=self.fingerprint,
            extras={name: value.detach().cpu().contiguous() for name, value in extras.items()},
        )
        found.require_variance()
        self.checks.finish(found)
        return found


def _check_batch_norm(model: nn.Module) -> str:
    """Raise a ModelError if BatchNorm's running statistics are invalid; return a warning if they are doubtful."""
    found = inspect_batch_norm(model)
    if found.error:
        raise ModelError(found.error)
    return found.warning


def _move(model: nn.Module, device: torch.device | str) -> torch.device:
    """Move ``model`` to ``device``; raise an OptionError if it is invalid or not available."""
    try:
        found = torch.device(device)
        model.to(found)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise OptionError(
            f"Cannot run on device={device!r} ({str(error).splitlines()[0]}). Pass an available device, such as "
            '"cpu" or "cuda:0", or leave it out to use the model\'s.'
        ) from error
    return found


def _check_loader(loader: Iterable[object]) -> None:
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise BatchError(
            f"Expected a loader that yields batches, found {type(loader).__name__}. Pass a DataLoader or a list of "
            "tensors."
        )


def _check_methods(methods: Sequence[HasCollectors]) -> None:
    several = isinstance(methods, Iterable) and not isinstance(methods, str)
    for method in methods if several else [methods]:
        if not several or isinstance(method, type) or not hasattr(method, "statistics_collectors"):
            raise OptionError(
                f"Expected methods to be a list of methods such as [regtta.FeatureRestoration()], found {method!r}. "
                "regtta.create_method(name) makes one."
            )


def _check_passes(loader: Iterable[object], passes: int, collectors: dict[str, StatisticsCollector]) -> None:
    if passes > 1 and isinstance(loader, Iterator):
        affected = [name for name, collector in collectors.items() if collector.passes > 1]
        raise StatisticsError(
            f"{', '.join(affected)} needs {passes} passes over the source, but the loader is an iterator, which can be "
            "consumed only once. Pass a list, a DataLoader or another iterable that can be iterated again."
        )


def _describe_method(method: HasCollectors) -> str:
    """Return the method with its options; only the class name if its repr may differ between processes."""
    return repr(method) if dataclasses.is_dataclass(method) else type(method).__name__


def _check_count(pass_index: int, seen: int, first: int) -> None:
    if seen != first:
        raise StatisticsError(
            f"The source loader gave {first} samples in its first pass and {seen} in pass {pass_index + 1}. Pass "
            "one that yields the same samples each time."
        )
