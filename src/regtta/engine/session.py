"""The adapter's copy of the model with the stream on it, from its construction to its export."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regtta.engine.forward import ForwardRunner, make_forward, resolve_execution, to_memory_format
from regtta.engine.graphed_learner import GraphedLearner
from regtta.engine.learner import Learner
from regtta.engine.rollback import AdaptableState
from regtta.engine.serving import ServedStream
from regtta.engine.session_options import SessionOptions
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
from regtta.execution import PLAIN
from regtta.methods import MethodContext
from regtta.models import (
    BufferSlots,
    Head,
    Inputs,
    find_head,
    fingerprint,
    model_device,
    private_copy,
    recompute_weights,
    run_model,
    trainable_parameters,
)
from regtta.persistence import Provenance, require_bool, require_mapping, to_dict, to_dict_v0_1_0
from regtta.statistics import describe_small_variation

logger = logging.getLogger(__name__)


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
            if options.serving.serve != "adapted":
                return ServedStream(learner, self._forward, options.guards, processes, options.serving)
            return Stream(learner, self._forward, self._options.guards, processes)
        sharded = ShardedLearner(*parts, processes=processes)
        stream = ShardedStream(sharded, self._forward, self._options.guards, processes)
        stream.whole_batches = self._options.splits_batches
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
        if isinstance(self.stream, ServedStream):  # a pass of the source model replaces the tensors for its duration
            return False
        return self.stream is None or (self.execution == PLAIN and not self._slots.reassigned)

    def predict(self, inputs: Inputs) -> Tensor:
        """Return predictions in eval mode, of the current model unless others are served; nothing changes."""
        if isinstance(self.stream, ServedStream):
            return self.stream.predict(inputs)
        if not self.is_concurrent:
            return self._forward.local(inputs).outputs
        with torch.no_grad():
            try:
                outputs = run_model(self.model, inputs, None, self._options.output)
                return self._options.serving.before_start(outputs) if self.stream is None else outputs
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

    @property
    def member(self) -> Literal["adapted", "source"]:
        """Model that is exported: of a mixture the one with the higher weight, the source model if both are equal."""
        if isinstance(self.stream, ServedStream) and self.stream.serving.serve == "mixture":
            return "adapted" if self.stream.mixture.weight > 0.5 else "source"
        return "adapted"

    def export(self) -> nn.Module:
        """Return the adapted model, or the leading one of a mixture, as a plain module in eval mode."""
        if isinstance(self.stream, ServedStream) and self.stream.serving.serve == "mixture":
            logger.warning("A mixture is exported as its leading member, the %s model.", self.member)
        return self._source_model() if self.member == "source" else self._adapted_model()

    def _adapted_model(self) -> nn.Module:
        """Return a copy of the adapted model, independent of the session."""
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
            adapted=self.fingerprint if self.member == "source" else fingerprint(self.model),
            method=to_dict(self._options.method),
            head=self.head,
            samples_behind_statistics=None if source is None else source.count,
            batches=stream.batches,
            learned=stream.learned,
            begun=stream.begun,
            member=self.member,
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
        if "feedback" in state and not isinstance(stream, ServedStream):
            raise MismatchError(
                "The state holds weights and predictions for labels that come late. Create the adapter with "
                'serve="mixture" or serve="source", as the stream was started.'
            )
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
        model = self._adapted_model()
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
