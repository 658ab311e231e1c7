"""The adapter: owns a copy of the model and is the only code that steps its weights."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from regtta.engine import (
    Dealt,
    Learner,
    MovingParts,
    Passes,
    StepView,
    Stream,
    check_arguments,
    check_complex,
    check_head_name,
    check_needs,
    check_state,
    check_targets,
    check_width,
    laid_out,
    runners,
    settled,
    with_later_guards,
)
from regtta.errors import MismatchError
from regtta.execution import PLAIN, Execution, SharedLock, processes_of
from regtta.guards import DEFAULT, Guard
from regtta.methods import Method, MethodContext
from regtta.models import (
    BufferSlots,
    extract_inputs,
    find_head,
    fingerprint,
    head_module,
    model_device,
    private_copy,
    recompute_weights,
    run_model,
)
from regtta.options import check_instances, replace
from regtta.persistence import Provenance, require_bool, require_mapping, to_dict, to_dict_v0_1_0
from regtta.statistics import SourceStatistics
from regtta.types import Step

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def _able_to_learn(function: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Servers wrap their handlers in inference mode, and nothing made or moved there can learn."""
    outside = torch.inference_mode(False)(function)

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
        return (outside if torch.is_inference_mode_enabled() else function)(*args, **kwargs)

    return call


class Adapter:
    """Adapts a copy of ``model`` to a stream of unlabelled batches.

    Args:
        model: the trained model; never touched.
        method: how to adapt, such as ``regtta.SSA()``.
        source: statistics of the source features, for methods that need them.
        head: name of the linear head; by default that of ``source``, else found on the first batch.
        guards: what refuses a batch or an update; by default only what cannot be learned from.
        allow_mismatch: go on with statistics of another model or another head.
        inputs: the key of the input in dict batches.
        execution: in which precision to run, compiled and captured or not, such as ``regtta.FAST``.
        group: processes of torch.distributed that adapt together, such as ``torch.distributed.group.WORLD``. Each gives
            :meth:`adapt` its own samples, all at the same time; they learn as one process would from all of them.
        overrides: fields of the method to change, such as ``lr=1e-4``.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(
        ...     torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        ... )
        >>> source = regtta.collect(model, torch.randn(100, 3).split(10))
        >>> adapter = regtta.Adapter(model, regtta.SSA(k=2), source)
        >>> step = adapter.adapt(torch.randn(10, 3) + 1)
        >>> step.predictions.shape, step.diagnostics.verdict.learned
        (torch.Size([10, 1]), True)
    """

    @_able_to_learn
    def __init__(
        self,
        model: nn.Module,
        method: Method,
        source: SourceStatistics | None = None,
        *,
        head: str | None = None,
        guards: Sequence[Guard] = DEFAULT,
        allow_mismatch: bool = False,
        inputs: str | None = None,
        execution: Execution = PLAIN,
        group: "torch.distributed.ProcessGroup | None" = None,
        **overrides: object,
    ) -> None:
        check_arguments(method=method, source=source, inputs=inputs, execution=execution, allow_mismatch=allow_mismatch)
        self.method = replace(method, overrides)
        self.source = source
        self.guards = check_instances(Guard, "guards", guards, "regtta.SAFE, (regtta.guards.Gate(),), or () for none")
        self._lock = SharedLock()
        self._inputs_key = inputs
        self._model = laid_out(private_copy(model).eval(), execution)
        check_head_name(self._model, head)
        self._slots = BufferSlots(self._model)
        self._device = model_device(self._model)
        self._processes = processes_of(group)
        self.execution = settled(execution, self._model, self.method.schedule.batch_norm, self._processes)
        self._grad_flags = [p.requires_grad for p in self._model.parameters()]
        self._fingerprint = fingerprint(self._model)
        self._processes.check_same("model", self._fingerprint)
        check_needs(self.method, self.guards, source)
        if source is not None and not allow_mismatch:
            source.check_fingerprint(self._fingerprint)
            source.check_head(head or source.head)
        self._stream: Stream | None = None
        self._frozen = False
        name = head or (source.head if source is not None else None)
        if name is not None or not self.method.needs_head:
            self._start(name)

    @_able_to_learn
    def adapt(
        self, x: object, targets: Tensor | None = None, *, look: Callable[[StepView], None] | None = None
    ) -> Step:
        """Predict on a batch, then learn from it.

        Args:
            x: a tensor (B, ...), a tuple that begins with one, or a dict (see ``inputs``). One of several processes
                gives its own samples of the batch, none included (0, ...).
            targets: labels, for the oracle alone.
            look: shown the batch as this model and as the source model see it, once the step is done; it must not
                call the adapter. Costs a pass of the source model where the model has moved and no guard made one.
        """
        with self._lock.writing(), self._processes.in_step():
            inputs = self._on_device(x)
            check_targets(self.method, targets)
            dealt = Dealt(inputs, targets, self._processes.dealt(inputs))
            if self._stream is None:
                self._start(self._found_head(inputs))
            step, sight = self._started.step(dealt, frozen=self._frozen, sight=look is not None)
            if look is not None and sight is not None:
                look(sight)
            return step

    def run(self, xs: Iterable[object]) -> Iterator[Step]:
        """:meth:`adapt` over a stream, one step a batch."""
        for x in xs:
            yield self.adapt(x)

    def predict(self, x: object) -> Tensor:
        """Predict in eval mode; nothing changes. Threads may predict side by side."""
        inputs = self._on_device(x)
        # A captured pass has one place for its input, and a model that assigns its buffers one place for each.
        if self._stream is not None and (self.execution != PLAIN or self._slots.reassigned):
            with self._lock.writing():
                return self._passes.here(inputs).outputs
        with self._lock.reading(), torch.no_grad():
            try:
                return run_model(self._model, inputs)
            finally:
                self._slots.restore()

    @property
    def head(self) -> str | None:
        """Name of the head, as soon as it is known; None where the method needs none and none was named."""
        return self._head if self._stream is not None else None

    def source_head(self) -> nn.Linear:
        """A copy of the head as it was when the adapter was made."""
        learner = self._started.learner
        if self.head is None or learner.context.head is None:
            raise MismatchError("The adapter knows no head. Pass head=<name>.")
        head = copy.deepcopy(learner.context.head)
        with torch.no_grad():
            for name, parameter in head.named_parameters():
                parameter.copy_(learner.parts.origin[f"{self.head}.{name}"])
        recompute_weights(head)
        return head

    def features(self, x: object) -> Tensor:
        """What enters the head (B, D), in eval mode; nothing changes."""
        if self.head is None:
            raise MismatchError("The adapter knows no head, and so no features. Pass head=<name>.")
        with self._lock.writing():  # the pass opens a tap in the model
            return self._passes.here(self._on_device(x)).features

    @_able_to_learn
    def reset(self) -> None:
        """Forget the stream: exactly the adapter that was made at first."""
        with self._lock.writing():
            self._frozen = False
            if self._stream is not None:
                self._stream.begin()

    @_able_to_learn
    def rollback(self) -> Literal["good", "source"]:
        """Return to the last good model, or to the source model where none was kept; says to which.

        Good is what a guard such as :class:`regtta.guards.HealthCheck` kept. The stream goes on from there.
        """
        with self._lock.writing():
            return self._started.return_to("good")

    def freeze(self) -> None:
        """Learn nothing more: from now on ``adapt`` only predicts, until :meth:`unfreeze`."""
        with self._lock.writing():  # an update under way ends first, so that none stands after this
            self._frozen = True

    def unfreeze(self) -> None:
        """Learn again."""
        with self._lock.writing():
            self._frozen = False

    @_able_to_learn
    def export(self) -> nn.Module:
        """The adapted model as a plain module in eval mode, independent of the adapter."""
        with self._lock.writing():
            model = private_copy(self._model).to(memory_format=torch.contiguous_format)
        for parameter, flag in zip(model.parameters(), self._grad_flags, strict=True):
            parameter.requires_grad_(flag)
            parameter.grad = None
        return model

    def provenance(self) -> Provenance:
        """Where the model that :meth:`export` gives comes from; ``regtta.persistence.export`` writes it into files."""
        with self._lock.writing():
            stream = self._started
            return Provenance(
                source=self._fingerprint,
                adapted=fingerprint(self._model),
                method=to_dict(self.method),
                head=self.head,
                samples_behind_statistics=None if self.source is None else self.source.count,
                batches=stream.batches,
                learned=stream.learned,
                begun=stream.begun,
            )

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: a new adapter that loads it goes on as if never stopped.

        Tensors and plain values only: :func:`regtta.persistence.state_files.write_state` keeps it in a file.
        """
        with self._lock.writing():
            return {**self._identity(), "frozen": self._frozen, **self._started.state_dict()}

    @_able_to_learn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, which must be of the same model, method and guards."""
        with self._lock.writing():
            stream, own = self._started, self._identity()
            moving = stream.learner.parts.tensors().keys()
            state = with_later_guards(require_mapping("", state), self.guards)
            check_state(state, own, moving, formerly=self._identity(to_dict_v0_1_0))
            frozen = require_bool("frozen", state.get("frozen"))
            stream.load_state_dict({key: value for key, value in state.items() if key not in {*own, "frozen"}})
            self._frozen = frozen

    # --- how a stream begins ---------------------------------------------------------------------

    def _found_head(self, inputs: Tensor) -> str:
        """The head that the first process with samples finds."""
        found = self._processes.first(find_head(self._model, inputs) if len(inputs) else None)
        self._slots.restore()
        if found is None:
            raise MismatchError("The first batch has no samples to find the head by. Pass head=<name>.")
        return found

    def _start(self, head: str | None) -> None:
        """What is settled once, as soon as the head is known."""
        module = None if head is None else head_module(self._model, head)
        if head is not None and module is not None:
            check_width(self.source, head, module)
        schedule = self.method.schedule
        parts = MovingParts(self._model, module, schedule.trainable, head_moves=schedule.may_replace_head)
        check_complex(self.method, parts.trainable)
        ways = runners(self._model, head, self.execution)
        self._head = head
        self._passes = Passes(ways, parts.as_begun, self.execution, self._processes, self._slots)
        context = MethodContext(self._model, module, self.source)
        learner = Learner(
            ways, parts, self.method, context, self._slots, processes=self._processes, execution=self.execution
        )
        self._stream = Stream(learner, self._passes, self.guards, self._processes)

    @property
    def _started(self) -> Stream:
        if self._stream is None:
            raise MismatchError(
                "The adapter has not found its head yet: it looks for one in its first batch. Pass "
                "head=<name>, or adapt first."
            )
        return self._stream

    # --- what comes in, and what it belongs to ---------------------------------------------------

    def _identity(self, describe: Callable[[object], dict[str, object]] = to_dict) -> dict[str, Any]:
        """What a state must be of to fit this adapter."""
        guards = [describe(guard) for guard in self.guards]
        return {"method": describe(self.method), "guards": guards, "model": self._fingerprint}

    def _on_device(self, x: object) -> Tensor:
        inputs = extract_inputs(x, None if isinstance(x, Tensor) else self._inputs_key)
        inputs = inputs.to(self._device)
        return inputs.clone() if inputs.is_inference() else inputs
