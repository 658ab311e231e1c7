"""The adapter's copy of the model with the stream on it, from its construction to its export."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regtta.engine.forward import ForwardRunner, make_forward, resolve_execution, to_memory_format
from regtta.engine.graphed_learner import GraphedLearner
from regtta.engine.learner import Learner
from regtta.engine.rollback import AdaptableState
from regtta.engine.sharded import ShardedLearner, ShardedStream
from regtta.engine.stream import Stream
from regtta.engine.summary import capture_warnings, record_warnings
from regtta.engine.validation import (
    check_complex,
    check_device,
    check_replaceable,
    check_state,
    check_width,
    with_later_guards,
)
from regtta.errors import MismatchError
from regtta.execution import PLAIN, Communicator, Execution
from regtta.guards import Guard
from regtta.methods import Method, MethodContext
from regtta.models import (
    BufferSlots,
    FeaturePooling,
    Head,
    Inputs,
    OutputSelection,
    find_head,
    fingerprint,
    model_device,
    private_copy,
    recompute_weights,
    run_model,
    trainable_parameters,
)
from regtta.persistence import Provenance, require_bool, require_mapping, to_dict, to_dict_v0_1_0
from regtta.statistics import SourceStatistics, describe_small_variation

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SessionOptions:
    """Options of a session.

    Attributes:
        method: the method.
        source: the source statistics, if given.
        guards: the guards.
        execution: requested execution options.
        processes: processes that share each batch.
        whole_batches: True if every process passes the same whole batch.
        output: selection of the prediction from what the model returns.
        pooling: the user's function from the head's input to features.
    """

    method: Method
    source: SourceStatistics | None
    guards: Sequence[Guard]
    execution: Execution
    processes: Communicator
    whole_batches: bool = False
    output: OutputSelection | None = None
    pooling: FeaturePooling | None = None


class Session:
    """A private copy of a model, and the stream that adapts it. Not thread-safe.

    Args:
        model: the user's model, which is copied.
        options: how to adapt.

    Attributes:
        model: the copy.
        execution: execution options in effect.
        fingerprint: fingerprint of the source model.
        stream: the stream; None until the head is known.
        head: name of the head, if it is known.
        device: device of the model.
        frozen: True if nothing is learned.
        warnings: warnings that were logged when the session and its stream were created.
    """

    def __init__(self, model: nn.Module, options: SessionOptions) -> None:
        self._options = options
        self.model = to_memory_format(private_copy(model).eval(), options.execution)
        self._resolve_execution()
        self._grad_flags = [p.requires_grad for p in self.model.parameters()]
        self.fingerprint = fingerprint(self.model)
        options.processes.check_same("model", self.fingerprint)
        with capture_warnings():  # logged once the head is known
            trainable_parameters(self.model, None, options.method.schedule.trainable)  # raises if there are none
        self._slots = BufferSlots(self.model)
        self.device = model_device(self.model)
        self.stream: Stream | None = None
        self.head: str | None = None
        self.frozen = False

    def _resolve_execution(self) -> None:
        options = self._options
        with record_warnings() as warnings:
            schedule = options.method.schedule
            self.execution = resolve_execution(options.execution, self.model, schedule, options.processes)
        self.warnings: tuple[str, ...] = tuple(warnings)

    # --- the stream ------------------------------------------------------------------------------

    def find_head(self, inputs: Inputs) -> str:
        """Return the head, found with the samples of the first process that has any."""
        options, processes = self._options, self._options.processes
        with processes.collective():
            own = None
            if len(inputs):
                own = find_head(self.model, inputs, output=options.output, pooling=options.pooling)
            found = processes.first(own)
        self._slots.restore()
        if found is None:
            raise MismatchError("The first batch has no samples to find the head with. Pass head=<name>.")
        return found

    def start(self, head: str | None) -> Stream:
        """Create the stream at the source model, and return it."""
        with record_warnings() as warnings:
            self.stream = self._make_stream(head)
            self._warn_of_small_variation()
        self.head, self.warnings = head, (*self.warnings, *warnings)
        return self.stream

    def _warn_of_small_variation(self) -> None:
        source, options = self._options.source, self._options
        if source is not None and (options.method.needs_source or any(guard.needs_source for guard in options.guards)):
            message = describe_small_variation(source.mean, source.feature_variances)
            if message:
                logger.warning("%s", message)

    def _make_stream(self, head: str | None) -> Stream:
        method, source, processes = self._options.method, self._options.source, self._options.processes
        schedule, slots, options = method.schedule, self._slots, self._options
        found = None if head is None else Head(self.model, head)
        if found is not None:
            check_width(source, str(head), found.linear)
            check_replaceable(method, found)
        module = None if found is None else found.module
        state = AdaptableState(self.model, module, schedule.trainable, head_moves=schedule.may_replace_head)
        check_complex(method, state.trainable)
        functions = make_forward(self.model, head, self.execution, output=options.output, pooling=options.pooling)
        self._forward = ForwardRunner(functions, state.source_tensors, self.execution, processes, slots)
        context = MethodContext(self.model, None if found is None else found.linear, source)
        parts = (functions, state, method, context, slots)
        if processes.size == 1:
            run = self.execution
            learner = GraphedLearner(*parts, execution=run) if run.capture else Learner(*parts, compiled=run.compile)
            return Stream(learner, self._forward, self._options.guards, processes)
        sharded = ShardedLearner(*parts, processes=processes)
        stream = ShardedStream(sharded, self._forward, self._options.guards, processes)
        stream.whole_batches = self._options.whole_batches
        return stream

    @property
    def started(self) -> Stream:
        """The stream; raises a MismatchError if the head is not known yet."""
        if self.stream is None:
            raise MismatchError(
                "The adapter has not found the head of the model yet: it does so with the first batch. Pass "
                "head=<name>, or adapt first."
            )
        return self.stream

    # --- predictions -----------------------------------------------------------------------------

    @property
    def is_concurrent(self) -> bool:
        """True if several threads may predict at once.

        A captured pass has one input tensor, and a model that assigns its buffers has one tensor for each.
        """
        return self.stream is None or (self.execution == PLAIN and not self._slots.reassigned)

    def predict(self, inputs: Inputs) -> Tensor:
        """Return predictions of the current model in eval mode; nothing changes."""
        if not self.is_concurrent:
            return self._forward.local(inputs).outputs
        with torch.no_grad():
            try:
                return run_model(self.model, inputs, None, self._options.output)
            finally:
                self._slots.restore()

    def features(self, inputs: Inputs) -> Tensor:
        """Return the inputs of the head, ``(B, D)`` or ``(B, T, D)``, in eval mode; nothing changes."""
        if self.head is None:
            raise MismatchError("The head of the model is not known, and so neither are features. Pass head=<name>.")
        return self._forward.local(inputs).features

    # --- results and state -----------------------------------------------------------------------

    def source_head(self) -> nn.Linear:
        """Return a copy of the head of the source model."""
        if self.head is None:
            raise MismatchError("The head of the model is not known. Pass head=<name>.")
        model = self._source_model()
        return private_copy(Head(model, self.head).linear)  # type: ignore[return-value]

    def export(self) -> nn.Module:
        """Return the adapted model as a plain module in eval mode, independent of the session."""
        model = private_copy(self.model).to(memory_format=torch.contiguous_format)
        for parameter, flag in zip(model.parameters(), self._grad_flags, strict=True):
            parameter.requires_grad_(flag)
            parameter.grad = None
        return model

    def provenance(self) -> Provenance:
        """Return the provenance of the adapted model."""
        stream, source = self.started, self._options.source
        return Provenance(
            source=self.fingerprint,
            adapted=fingerprint(self.model),
            method=to_dict(self._options.method),
            head=self.head,
            samples_behind_statistics=None if source is None else source.count,
            batches=stream.batches,
            learned=stream.learned,
            begun=stream.begun,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values."""
        return {**self._identity(), "frozen": self.frozen, **self.started.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict` of a session with the same model, method and guards."""
        stream, own = self.started, self._identity()
        state = with_later_guards(require_mapping("", state), self._options.guards)
        formerly = self._identity(to_dict_v0_1_0)
        check_state(state, own, stream.learner.state.tensors().keys(), formerly=formerly)
        frozen = require_bool("frozen", state.get("frozen"))
        stream.load_state_dict({key: value for key, value in state.items() if key not in {*own, "frozen"}})
        self.frozen = frozen

    def _identity(self, describe: Callable[[object], dict[str, object]] = to_dict) -> dict[str, Any]:
        """Return what a state must have in common with this session."""
        guards = [describe(guard) for guard in self._options.guards]
        return {"method": describe(self._options.method), "guards": guards, "model": self.fingerprint}

    def __deepcopy__(self, memo: object) -> "Session":
        """Return a session at the same state, with a model and a stream of its own."""
        stream = self.stream
        other = Session(self._source_model(), self._options)
        other.frozen = self.frozen
        if stream is not None:
            copied = other.start(self.head)
            copied.load_state_dict(stream.state_dict())
            copied.reasons = stream.reasons.copy()
        return other

    def _source_model(self) -> nn.Module:
        """Return a copy of the source model."""
        model = self.export()
        if self.stream is not None:
            tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
            for name, value in self.stream.learner.state.origin.items():
                tensors[name].data = value.clone()
            for layer in () if self.head is None else Head(model, self.head).modules.values():
                recompute_weights(layer)
        return model

    def move_to(self, device: str | torch.device) -> None:
        """Move the model and the state of the stream to another device, or raise an error and change nothing."""
        check_device(device)
        before, stream = self.device, self.stream
        state, reasons = (None, Counter()) if stream is None else (stream.state_dict(), stream.reasons)
        try:
            self._move(device, state)
        except BaseException:  # such as too little memory
            self._move(before, state)
            raise
        finally:
            if self.stream is not None:
                self.stream.reasons = reasons

    def _move(self, device: str | torch.device, state: Mapping[str, Any] | None) -> None:
        if self.stream is not None:
            self.stream.reset()
            self.stream.learner.state.unflatten()
        self.model.to(device)
        self.device = model_device(self.model)
        self._slots = BufferSlots(self.model)
        self._resolve_execution()
        if state is not None:
            self.start(self.head).load_state_dict(state)
