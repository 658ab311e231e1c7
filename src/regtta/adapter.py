"""The adapter: owns a copy of the model and is the only code that updates its weights."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from regtta.engine import (
    Limit,
    Served,
    ServedStream,
    ServingOptions,
    Session,
    SessionOptions,
    Shard,
    StreamStep,
    call_after_step,
    check_arguments,
    check_head_name,
    check_needs,
    check_targets,
    summarize,
    with_required_guards,
)
from regtta.errors import OptionError
from regtta.execution import PLAIN, BatchSplitter, Execution, SharedLock, make_communicator
from regtta.guards import DEFAULT, Guard
from regtta.methods import Method, create_method
from regtta.models import (
    BatchReader,
    FeaturePooling,
    Inputs,
    InputSelection,
    OutputSelection,
    check_model,
)
from regtta.options import check_instances, replace
from regtta.persistence import Provenance
from regtta.statistics import SourceStatistics
from regtta.types import Callback, FeedbackScores, Step, StepView

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def _outside_inference_mode(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Leave inference mode, in which servers often run their handlers and no tensor can be learned from."""
    outside = torch.inference_mode(False)(function)

    @wraps(function)
    def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        return (outside if torch.is_inference_mode_enabled() else function)(*args, **kwargs)

    return call


class Adapter:
    """Adapts a copy of ``model`` to a stream of unlabelled batches.

    Args:
        model: the trained model; never modified.
        method: how to adapt: a method such as ``regtta.SSA()``, or its name, such as ``"ssa"``.
        source: statistics of the source features, or the file they were saved to, for methods that need them.
        head: the head, such as ``"fc"`` or ``"score[last]"`` (see :mod:`regtta.models.heads`); by default that of
            ``source``, else found with the first batch.
        inputs: how a batch becomes the arguments of the model: a key, an index, a list of them, or a callable from a
            batch to ``(args, kwargs)``. By default found from the parameters of ``model.forward``, see
            :class:`regtta.models.BatchReader`.
        output: which part of what the model returns is the prediction: a key, an index, or a callable. By default the
            only tensor, ``logits``, or the mean of a distribution, see :func:`regtta.models.select_output`.
        features: function from the head's input, such as ``(B, T, D)``, to features ``(B, D)``, as passed to
            :func:`regtta.collect`.
        guards: guards that exclude samples, reject batches or steps, or roll the model back; by default only batches
            that cannot be learned from are rejected.
        callbacks: objects that follow the stream, such as :class:`regtta.Monitor` and :class:`regtta.Checkpoint`.
        allow_mismatch: accept statistics of another model or another head.
        execution: precision, memory format, compilation and CUDA graphs, such as ``regtta.FAST``.
        process_group: processes of torch.distributed that adapt together, such as ``torch.distributed.group.WORLD``.
            Each passes its own samples to :meth:`adapt`, all at the same time; they learn as one process would from
            all samples.
        whole_batches: with a process group, each process passes the same whole batch instead; the batch is split
            between them, and every process gets the whole result.
        serve: whose predictions :meth:`adapt` and :meth:`predict` return: ``"adapted"``; ``"source"`` for the source
            model's, while a copy adapts and is measured (shadow mode); or ``"mixture"`` for the mean of both, with
            weights from :meth:`feedback`.
        feedback_range: with ``serve="source"`` or ``"mixture"``, the smallest and the largest label, ``(low, high)``,
            each a number or one per output. By default the mean of the source model's outputs, less and plus 4 standard
            deviations.
        feedback_memory: number of samples whose predictions are kept for labels that come late.
        overrides: fields of the method to change, such as ``lr=1e-4``.

    Attributes:
        method, source, guards, callbacks: as given, the method with its overrides, the guards with that of a selective
            method.
        execution: the execution options in effect.
        output, pooling, serve: as given for ``output``, ``features`` and ``serve``.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(
        ...     torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        ... )
        >>> source = regtta.collect(model, torch.randn(100, 3).split(10))
        >>> adapter = regtta.Adapter(model, "ssa", source, k=2)
        >>> step = adapter.adapt(torch.randn(10, 3) + 1)
        >>> step.predictions.shape, step.adapted
        (torch.Size([10, 1]), True)
    """

    @_outside_inference_mode
    def __init__(
        self,
        model: nn.Module,
        method: Method | str,
        source: SourceStatistics | str | Path | None = None,
        *,
        head: str | None = None,
        inputs: InputSelection | None = None,
        output: OutputSelection | None = None,
        features: FeaturePooling | None = None,
        guards: Sequence[Guard] = DEFAULT,
        callbacks: Sequence[Callback] = (),
        allow_mismatch: bool = False,
        execution: Execution = PLAIN,
        process_group: "torch.distributed.ProcessGroup | None" = None,
        whole_batches: bool = False,
        serve: Served = "adapted",
        feedback_range: tuple[Limit, Limit] | None = None,
        feedback_memory: int = 10_000,
        **overrides: object,
    ) -> None:
        if isinstance(method, str):
            method, overrides = create_method(method, **overrides), {}
        source = SourceStatistics.load(source) if isinstance(source, str | Path) else source
        check_arguments(method=method, source=source, execution=execution, allow_mismatch=allow_mismatch)
        self.method = replace(method, overrides)
        self.source = source
        checked = check_instances(Guard, "guards", guards, "regtta.SAFE, (regtta.guards.Gate(),), or () for none")
        self.guards = with_required_guards(self.method, checked)
        self.callbacks = check_instances(Callback, "callbacks", callbacks, "[regtta.Monitor()], or () for none")
        self._lock = SharedLock()
        check_model(model)
        self._read = BatchReader(model, inputs)
        self._takes_tensors = self._read.takes_one
        check_head_name(model, head)
        options = SessionOptions(
            self.method,
            source,
            self.guards,
            execution,
            make_communicator(process_group),
            whole_batches,
            output,
            features,
            ServingOptions(serve, feedback_range, feedback_memory),
        )
        self._processes, self._whole_batches = options.processes, options.splits_batches
        self._session = session = Session(model, options)
        self.execution = session.execution
        self.output, self.pooling, self.serve = output, features, serve
        check_needs(self.method, self.guards, source)
        if source is not None and not allow_mismatch:
            source.check_fingerprint(session.fingerprint)
            source.check_head(head or source.head)
        self._closed = False
        name = head
        if source is not None and (head is None or source.head.startswith(f"{head}[")):
            name = source.head
        if name is not None or not self.method.needs_head:
            session.start(name)
        for callback in self.callbacks:
            callback.on_start(self)

    # --- a batch ---------------------------------------------------------------------------------

    @_outside_inference_mode
    def adapt(self, x: object, targets: Tensor | None = None) -> Step:
        """Predict a batch, then learn from it.

        Args:
            x: a batch: a tensor ``(B, ...)``, a tuple or a dict of tensors (see ``inputs``). With a process group, the
                samples of this process, which may be none, ``(0, ...)``.
            targets: labels, for the oracle only.
        """
        inputs = x if isinstance(x, Tensor) and x.ndim and self._takes_tensors else self._read(x)
        with self._lock.turn:  # one batch at a time, with its callbacks; other threads may predict
            for callback in self.callbacks:
                callback.before_step(self, inputs)
            with self._lock.unshared:
                alone = self._lock.owner == get_ident()
                if alone:
                    done = self._step(inputs, targets)
            if not alone:
                with self._lock.writing():
                    done = self._step(inputs, targets)
            if self.callbacks:
                call_after_step(self, done, self._view)
            return done.step

    def _step(self, inputs: Inputs, targets: Tensor | None) -> StreamStep:
        session = self._session
        if inputs.device != session.device or inputs.is_inference():
            inputs = self._on_device(inputs)
        if targets is not None or self.method.takes_targets:
            check_targets(self.method, targets)
        stream = session.stream or session.start(session.find_head(inputs))
        return stream.step(Shard(inputs, targets, (len(inputs),)), frozen=session.frozen)

    def _view(self, done: StreamStep) -> StepView:
        with self._lock.writing():
            return self._session.started.view(done)

    def run(self, xs: Iterable[object]) -> Iterator[Step]:
        """Call :meth:`adapt` on every batch of a stream, one step at a time."""
        for x in xs:
            yield self.adapt(x)

    def predict(self, x: object) -> Tensor:
        """Return predictions in eval mode, of the model that is served; nothing changes.

        Threads may predict concurrently.
        """
        inputs = self._on_device(x)
        if not self._whole_batches:
            return self._predict(inputs)
        splitter = BatchSplitter(self._processes, len(inputs))
        shard = inputs[splitter.own]
        # A model need not be able to run on an empty batch.
        return splitter.join(self._predict(shard if len(shard) else inputs[:1])[: len(shard)])

    def _predict(self, inputs: Inputs) -> Tensor:
        with self._lock.reading() if self._session.is_concurrent else self._lock.writing():
            return self._session.predict(inputs)

    def features(self, x: object) -> Tensor:
        """Return the inputs of the head, ``(B, D)`` or ``(B, T, D)``, in eval mode; nothing changes."""
        with self._lock.writing():  # the forward pass overrides the head for its duration
            return self._session.features(self._on_device(x))

    @_outside_inference_mode
    def feedback(self, step_index: int, y: object, rows: object = None) -> FeedbackScores:
        """Count labels of an earlier batch, after any delay and in any order, and return the weights and losses.

        Requires ``serve="mixture"``, whose weights they update, or ``serve="source"``, where they only measure. Either
        all labels of a call are counted, or an error is raised and none is.

        Args:
            step_index: ``Step.index`` of the batch.
            y: labels of the shape of the predictions; ``(B,)`` is accepted for predictions ``(B, 1)``.
            rows: positions of the labelled samples in the batch, in the order of ``y``; by default all of them. Each
                sample is labelled at most once.

        Example:
            >>> import torch, regtta
            >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
            >>> adapter = regtta.Adapter(
            ...     model, regtta.BNAdapt(), head="2", serve="mixture", feedback_range=(-3.0, 3.0)
            ... )
            >>> steps = [adapter.adapt(x) for x in torch.randn(4, 16, 3)]
            >>> adapter.feedback(steps[1].index, torch.randn(3), rows=[0, 4, 7]).labels
            3
        """
        with self._lock.writing():
            stream = self._session.started
            if not isinstance(stream, ServedStream):
                raise OptionError(
                    'Expected an adapter with serve="mixture" or serve="source", which keep predictions for labels '
                    'that come late, found serve="adapted". Pass one of them to Adapter.'
                )
            return stream.feedback(step_index, y, rows)

    # --- the stream ------------------------------------------------------------------------------

    @_outside_inference_mode
    def reset(self) -> None:
        """Start a new stream: afterwards the adapter is exactly as it was created."""
        with self._lock.turn:
            with self._lock.writing():
                self._session.frozen = self._closed = False
                if self._session.stream is not None:
                    self._session.stream.reset()
            for callback in self.callbacks:
                callback.on_start(self)

    @_outside_inference_mode
    def rollback(self) -> Literal["good", "source"]:
        """Return to the last good model, or to the source model if there is none, and return which.

        A model is good if a guard such as :class:`regtta.guards.HealthCheck` has marked it. The stream continues.
        """
        with self._lock.turn:
            with self._lock.writing():
                returned = self._session.started.return_to("good")
            for callback in self.callbacks:
                callback.on_rollback(self, returned)
            return returned

    def freeze(self) -> None:
        """Stop learning: from now on, ``adapt`` only predicts, until :meth:`unfreeze`."""
        with self._lock.writing():  # after a step that is under way
            self._session.frozen = True

    def unfreeze(self) -> None:
        """Learn again after :meth:`freeze`."""
        with self._lock.writing():
            self._session.frozen = False

    def close(self) -> None:
        """End the stream: call ``on_end`` of every callback, once. The adapter can still be used."""
        with self._lock.turn:
            if not self._closed:
                self._closed = True
                with ExitStack() as ends:  # calls all of them, even if one raises
                    for callback in reversed(self.callbacks):
                        ends.callback(callback.on_end, self)

    def add_callback(self, callback: Callback) -> None:
        """Add a callback, which then follows the stream from here on."""
        with self._lock.turn:
            before = self.callbacks
            self.callbacks = check_instances(Callback, "callbacks", (*before, callback), "a regtta.Callback")
            try:
                callback.on_start(self)
            except BaseException:
                self.callbacks = before
                raise

    def paused(self) -> AbstractContextManager[object]:
        """Return a context manager inside which no other thread adapts; predictions continue."""
        return self._lock.turn

    def __enter__(self) -> "Adapter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- model and state -------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The adapted copy of the model, for reading only; :meth:`export` returns one to use."""
        return self._session.model

    @property
    def head(self) -> str | None:
        """Name of the head as soon as it is known; None if the method needs none and none was named."""
        return self._session.head

    def source_head(self) -> nn.Linear:
        """Return a copy of the head of the source model as one linear layer."""
        return self._session.source_head()

    @_outside_inference_mode
    def export(self) -> nn.Module:
        """Return the adapted model as a plain module in eval mode, independent of the adapter.

        With ``serve="mixture"``, return the member with the higher weight and log which it is; the source model if both
        weights are equal.
        """
        with self._lock.writing():
            return self._session.export()

    def provenance(self) -> Provenance:
        """Return the provenance of the exported model, which ``regtta.persistence.save_model`` stores in its file."""
        with self._lock.writing():
            return self._session.provenance()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the stream; an adapter that loads it continues as if never stopped.

        Tensors and plain values only: :func:`regtta.persistence.state_files.write_state` writes it.
        """
        with self._lock.writing():
            return self._session.state_dict()

    @_outside_inference_mode
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict` of an adapter with the same model, method and guards."""
        with self._lock.writing():
            self._session.load_state_dict(state)

    @_outside_inference_mode
    def to(self, device: str | torch.device) -> "Adapter":
        """Move the adapter with its state to another device, and return it."""
        with self._lock.writing():
            self._session.move_to(device)
            self.execution = self._session.execution
        return self

    @_outside_inference_mode
    def __deepcopy__(self, memo: dict[int, Any]) -> "Adapter":
        """Return an adapter that continues the stream by itself, with copies of the callbacks."""
        other = object.__new__(type(self))
        memo[id(self)] = other
        with self._lock.turn, self._lock.writing():
            vars(other).update(copy.deepcopy(vars(self), memo))
        return other

    def summary(self) -> str:
        """Return a description of the adapter, of its stream so far, and of the warnings when it was created."""
        with self._lock.writing():
            return summarize(self, self._session.stream, self._session.warnings)

    def __repr__(self) -> str:
        stream, head = self._session.stream, f", head={self.head!r}" if self.head is not None else ""
        batches, learned = (0, 0) if stream is None else (stream.batches, stream.learned)
        return f"Adapter({type(self.model).__name__}, {self.method.name}{head}, batches={batches}, adapted={learned})"

    def _on_device(self, x: object) -> Inputs:
        inputs: Inputs = x if isinstance(x, Tensor) and x.ndim and self._takes_tensors else self._read(x)
        inputs = inputs.to(self._session.device)
        return inputs.clone() if inputs.is_inference() else inputs
