"""Gathering source statistics in streaming passes over the source data."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.utils.data import DataLoader

from regtta.batches import inputs_of
from regtta.errors import BatchError, OptionError, StatisticsError
from regtta.extremes import FurthestFeatures, InputRanges
from regtta.failing import failing_together
from regtta.features import FeatureModel, Forward, find_head, model_device
from regtta.gathering import Gatherer, Gathers
from regtta.moments import Moments, RunningMoments, moments_of_all
from regtta.parameters import private_copy
from regtta.processes import Processes, processes_of
from regtta.statistics import SourceStatistics, fingerprint

_BATCHES_BETWEEN_CHECKS = 32


def collect(
    model: nn.Module,
    loader: Iterable[object],
    *,
    head: str | None = None,
    methods: Sequence[Gathers] = (),
    inputs: str | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[int], None] | None = None,
    group: "dist.ProcessGroup | None" = None,
) -> SourceStatistics:
    """Statistics of the source features of ``model`` over ``loader``, in one streaming pass.

    Runs in eval mode, on a copy: the model given is left bit for bit as it was. Memory does not
    depend on the number of samples.

    Args:
        model: a trained model that ends in a linear head.
        loader: batches ``x``, ``(x, y)`` or dicts; targets are dropped.
        head: name of the head; ``None`` finds it by probing the first batch.
        methods: whose needs beyond the moments to gather as well. Feature restoration needs a second pass over the
            data, and so a loader that can be iterated again.
        inputs: the key of the input in dict batches.
        device: where to run; ``None`` stays on the model's device.
        progress: called after each batch with the number of samples seen so far, over all passes.
        group: processes that collect together, such as ``torch.distributed.group.WORLD``. Each gives the same model and
            its own share of the data, which may be none; all return the statistics of the whole. They wait for each
            other at the end of each pass alone, and what fails in one raises in all.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        >>> source = regtta.collect(model, torch.randn(100, 3).split(10))
        >>> source.count, source.head, source.basis.shape
        (100, '2', torch.Size([8, 8]))
    """
    processes = processes_of(group)
    with failing_together(processes):
        _check_loader(loader)
        _check_methods(methods)
        features = _SourceFeatures(model, head, inputs, device)
        moments, furthest = _FeatureMoments(features.device), FurthestFeatures(features.device)
        extra = {name: gatherer for method in methods for name, gatherer in method.gatherers().items()}
        gatherers = [moments, furthest, *extra.values()]
        for gatherer in gatherers:
            gatherer.check(processes)
        passes = max(gatherer.passes for gatherer in gatherers)
        _check_passes(loader, passes, extra)
    processes.check_same("model", features.fingerprint)
    processes.check_same("list of methods to gather for", ", ".join(map(_described, methods)))
    counts = [0] * passes
    for number in range(passes):
        at_work = [gatherer for gatherer in gatherers if number < gatherer.passes]
        with failing_together(processes):
            for forward in features.over(loader):
                for gatherer in at_work:
                    gatherer.see(forward, number)
                counts[number] += len(forward.features)
                if progress is not None:
                    progress(sum(counts))
            _check_count(number, counts[number], counts[0])
        features.agree_on_head(processes)
        for gatherer in at_work:
            gatherer.merge(processes, number)
    results = {f"{name}/{key}": value for name, g in extra.items() for key, value in g.result().items()}
    source = features.statistics(moments.merged, results)
    return dataclasses.replace(
        source,
        input_ranges=features.ranges.merged(processes),
        largest_feature_norm=float(source.whitened_norms(furthest.rows).max()),
    )


class _FeatureMoments(Gatherer):
    """The moments of the features, which every collection gathers."""

    merged: Moments

    def __init__(self, device: torch.device) -> None:
        self._running = RunningMoments()
        self._device = device

    def see(self, forward: Forward, number: int) -> None:  # noqa: ARG002 - there is one pass
        """Add the features of a batch."""
        self._running.add(forward.features)

    def merge(self, processes: Processes, number: int) -> None:  # noqa: ARG002 - there is one pass
        """Make them those of all processes."""
        moments = moments_of_all(self._running.finish(), processes, self._device)
        if moments is None:
            raise StatisticsError(
                "The source loader gave no samples. Give one that yields batches of inputs; an iterator "
                "that was used up before is empty."
            )
        self.merged = moments

    def result(self) -> dict[str, Tensor]:
        """Nothing extra: :attr:`merged` is what the statistics are made of."""
        return {}


class _SourceFeatures:
    """The features of a private copy of the model, batch by batch."""

    def __init__(self, model: nn.Module, head: str | None, key: str | None, device: torch.device | str | None) -> None:
        self._model = private_copy(model).eval()
        self.fingerprint = fingerprint(self._model)
        self.device = model_device(self._model) if device is None else _moved(self._model, device)
        self._forward = None if head is None else FeatureModel(self._model, head)
        self._head = ""
        self._key = key
        self.ranges = InputRanges()

    @torch.no_grad()
    def over(self, loader: Iterable[object]) -> Iterator[Forward]:
        """One pass; features that are not finite are told of within a few batches, at the latest when it ends."""
        watch = _FiniteWatch()
        # Pinned batches are new ones each time where torch makes them; who else pins may write into them again.
        pinned = self.device.type == "cuda" and isinstance(loader, DataLoader) and loader.pin_memory
        for index, batch in enumerate(loader):
            inputs = inputs_of(batch, self._key).to(self.device, non_blocking=pinned)
            if len(inputs) == 0:
                continue
            if self._forward is None:
                self._forward = FeatureModel(self._model, find_head(self._model, inputs))
            forward = self._forward(inputs)
            self.ranges.see(inputs)
            watch.see(forward.features, index)
            yield forward
        watch.check()

    def agree_on_head(self, processes: Processes) -> None:
        """Take over the head from the other processes where no batch has shown it here; raise where they differ."""
        mine = None if self._forward is None else self._forward.head_name
        found = processes.first(mine)
        self._head = mine or found or ""
        processes.check_same("head", self._head)

    def statistics(self, moments: Moments, extras: dict[str, Tensor]) -> SourceStatistics:
        """What was gathered, with the mark of the model it was gathered on."""
        found = SourceStatistics.from_moments(
            moments,
            head=self._head,
            fingerprint=self.fingerprint,
            extras={name: value.detach().cpu().contiguous() for name, value in extras.items()},
        )
        found.require_variance()
        return found


class _FiniteWatch:
    """Whether features are finite. Asked once in many batches, since the answer of a GPU has to be waited for."""

    def __init__(self) -> None:
        self._ends: list[Tensor] = []
        self._batches: list[int] = []

    def see(self, features: Tensor, batch: int) -> None:
        """Look at the features of batch ``batch``."""
        self._ends += features.aminmax()  # NaN where one is
        self._batches.append(batch)
        if len(self._batches) == _BATCHES_BETWEEN_CHECKS:
            self.check()

    def check(self) -> None:
        """Raise where a batch seen was not finite, for the first of them."""
        if not self._batches:
            return
        finite = torch.stack(self._ends).isfinite().view(-1, 2).all(dim=1).tolist()
        if not all(finite):
            raise StatisticsError(
                f"The model gives non-finite features on source batch {self._batches[finite.index(False)]}. Source "
                "data must be clean: drop those samples, or check the model's weights."
            )
        self._ends, self._batches = [], []


def _moved(model: nn.Module, device: torch.device | str) -> torch.device:
    """Move ``model`` to a device that may not be there or not be one."""
    try:
        found = torch.device(device)
        model.to(found)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise OptionError(
            f"Cannot run on device={device!r} ({str(error).splitlines()[0]}). Pass one that torch has here, such as "
            '"cpu" or "cuda:0", or leave it out to stay on the model\'s.'
        ) from error
    return found


def _check_loader(loader: Iterable[object]) -> None:
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise BatchError(
            f"Expected a loader that yields batches, found {type(loader).__name__}. Pass a DataLoader or a list of "
            "tensors."
        )


def _check_methods(methods: Sequence[Gathers]) -> None:
    several = isinstance(methods, Iterable) and not isinstance(methods, str)
    for method in methods if several else [methods]:
        if not several or isinstance(method, type) or not hasattr(method, "gatherers"):
            raise OptionError(
                f"Expected methods to be a list of methods such as [regtta.FeatureRestoration()], found {method!r}. "
                "regtta.method(name) makes one."
            )


def _check_passes(loader: Iterable[object], passes: int, gatherers: dict[str, Gatherer]) -> None:
    if passes > 1 and isinstance(loader, Iterator):
        needy = [name for name, gatherer in gatherers.items() if gatherer.passes > 1]
        raise StatisticsError(
            f"{', '.join(needy)} needs {passes} passes over the source, but the loader is an iterator, used up after "
            "one. Give a list, a DataLoader or anything else that can be iterated again."
        )


def _described(method: Gathers) -> str:
    """The method and its options; those that are no dataclass have no text that is the same in every process."""
    return repr(method) if dataclasses.is_dataclass(method) else type(method).__name__


def _check_count(number: int, seen: int, first: int) -> None:
    if seen != first:
        raise StatisticsError(
            f"The source loader gave {first} samples in its first pass and {seen} in pass {number + 1}. Give one that "
            "yields the same samples each time."
        )
