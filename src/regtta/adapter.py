"""The adapter: owns a copy of the model and is the only code that steps its weights."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regtta.errors import BatchError, HeadMismatchError, MismatchError, OptionError, StatisticsError
from regtta.features import (
    FeatureModel,
    Forward,
    find_head,
    inputs_of,
    model_device,
    run_model,
    without_features,
)
from regtta.guards import DEFAULT, Guard, Outcome
from regtta.methods import Batch, Method, NewHead, Rule, Skip, Stage, Update
from regtta.moving import MovingParts
from regtta.options import described, replace
from regtta.parameters import BatchNormSwitch, batch_norms, private_copy
from regtta.provenance import Provenance, utc_now
from regtta.statistics import SourceStatistics, fingerprint
from regtta.steps import Diagnostics, Step, Verdict


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
        **overrides: object,
    ) -> None:
        if not isinstance(method, Method):
            raise OptionError(
                f"Expected a method such as regtta.SSA(), found {method!r}. regtta.method(name) makes one."
            )
        self.method = replace(method, overrides)
        self.source = source
        self.guards = tuple(guards)
        self._inputs_key = inputs
        self._model = private_copy(model).eval()
        self._grad_flags = [p.requires_grad for p in self._model.parameters()]
        self._fingerprint = fingerprint(self._model)
        self._check_source(head, allow_mismatch=allow_mismatch)
        self._parts: MovingParts | None = None
        name = head or (source.head if source is not None else None)
        if name is not None or not self.method.needs_head:
            self._start(name)

    @torch.inference_mode(False)  # servers wrap their handlers in it, and nothing can be learned there
    def adapt(self, x: object, targets: Tensor | None = None) -> Step:
        """Predict on a batch, then learn from it.

        Args:
            x: a tensor (B, ...), a tuple that begins with one, or a dict (see ``inputs``).
            targets: labels, for the oracle alone.
        """
        inputs = self._on_device(x)
        self._check_targets(targets)
        if self._parts is None:
            self._start(find_head(self._model, inputs))
        reason = _first(guard.admits(inputs) for guard in self.guards)
        outcome, predictions = Outcome(None, None), None
        if reason is None:
            outcome, predictions, reason = self._learn(inputs, targets)
        if predictions is None:
            predictions = self.predict(inputs)
        verdict = Verdict(learned=reason is None, reason=reason or "")
        displacement = self._started.displacement()
        diagnostics = Diagnostics(outcome.loss, outcome.gradient_norm, displacement, verdict)
        step = Step(self._index, predictions, diagnostics)
        self._index += 1
        self._learned += verdict.learned
        return step

    def run(self, xs: Iterable[object]) -> Iterator[Step]:
        """:meth:`adapt` over a stream, one step a batch."""
        for x in xs:
            yield self.adapt(x)

    def predict(self, x: object) -> Tensor:
        """Predict in eval mode; nothing changes."""
        with torch.no_grad():
            return run_model(self._model, self._on_device(x))

    @property
    def head(self) -> str | None:
        """Name of the head, as soon as it is known; None where the method needs none and none was named."""
        forward = self._forward if self._parts is not None else None
        return forward.head_name if isinstance(forward, FeatureModel) else None

    def features(self, x: object) -> Tensor:
        """What enters the head (B, D), in eval mode; nothing changes."""
        forward = self._forward if self._parts is not None else None
        if not isinstance(forward, FeatureModel):
            raise MismatchError("The adapter knows no head, and so no features. Pass head=<name>.")
        with torch.no_grad():
            return forward(self._on_device(x)).features

    def reset(self) -> None:
        """Forget the stream: exactly the adapter that was made at first."""
        if self._parts is not None:
            self._parts.restore_origin()
            self._begin_stream()

    def export(self) -> nn.Module:
        """The adapted model as a plain module in eval mode, independent of the adapter."""
        model = private_copy(self._model)
        for parameter, flag in zip(model.parameters(), self._grad_flags, strict=True):
            parameter.requires_grad_(flag)
            parameter.grad = None
        return model

    def provenance(self) -> Provenance:
        """Where the model that :meth:`export` gives comes from; ``regtta.exporting`` writes it into files."""
        self._started  # noqa: B018 - raises where no stream has begun
        return Provenance(
            source=self._fingerprint,
            adapted=fingerprint(self._model),
            method=described(self.method),
            head=self.head,
            samples_behind_statistics=None if self.source is None else self.source.count,
            batches=self._index,
            learned=self._learned,
            begun=self._begun,
        )

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: a new adapter that loads it goes on as if never stopped.

        Tensors and plain values only, so that ``torch.save`` and ``torch.load(weights_only=True)``
        carry it.
        """
        live = self._started.tensors()
        return {
            "method": described(self.method),
            "model": self._fingerprint,
            "index": self._index,
            "learned": self._learned,
            "begun": self._begun,
            "batch_norm_updates": self._batch_norm.updates,
            "tensors": {name: tensor.detach().clone() for name, tensor in live.items()},
            "optimizer": copy.deepcopy(self._optimizer.state_dict()) if self._optimizer else {},
            "rule": copy.deepcopy(self._rule.state_dict()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, which must be of the same model and method."""
        parts = self._started
        self._check_state(state)
        self._begin_stream()
        parts.load(state["tensors"])
        self._index = state["index"]
        self._learned, self._begun = state["learned"], state["begun"]
        self._batch_norm.updates = state["batch_norm_updates"]
        if self._optimizer is not None:
            self._optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self._rule.load_state_dict(copy.deepcopy(state["rule"]))

    # --- how a stream begins ---------------------------------------------------------------------

    def _start(self, head: str | None) -> None:
        """What is settled once, as soon as the head is known."""
        if head is None:
            self._forward, module = without_features(self._model), None
        else:
            self._forward = FeatureModel(self._model, head)
            module = self._forward.head
            self._check_width(head, module)
        self._stage = Stage(self._model, module, self.source)
        self._parts = MovingParts(self._model, module, self.method.schedule.trainable)
        self._begin_stream()

    def _begin_stream(self) -> None:
        """What each stream starts afresh."""
        schedule = self.method.schedule
        parameters = self._started.trainable.values()
        self._index, self._learned = 0, 0
        self._begun = utc_now()
        self._batch_norm = BatchNormSwitch(batch_norms(self._model), schedule.batch_norm)
        self._optimizer = schedule.optimizer(parameters) if schedule.optimizer else None
        self._rule: Rule = self.method.start(self._stage)

    @property
    def _started(self) -> MovingParts:
        if self._parts is None:
            raise MismatchError(
                "The adapter has not found its head yet: it looks for one in its first batch. Pass "
                "head=<name>, or adapt first."
            )
        return self._parts

    # --- one step --------------------------------------------------------------------------------

    def _learn(self, inputs: Tensor, targets: Tensor | None) -> tuple[Outcome, Tensor | None, str | None]:
        """The first of the batch's steps: what came of it, its predictions, why it was refused."""
        first = self._attempt(inputs, targets)
        for _ in range(self.method.schedule.steps - 1):
            if first[2] is not None or self._attempt(inputs, targets)[2] is not None:
                break
        return first

    def _attempt(self, inputs: Tensor, targets: Tensor | None) -> tuple[Outcome, Tensor | None, str | None]:
        """One step, taken back whole if it is refused or breaks off."""
        parts, updates = self._started, self._batch_norm.updates
        remembered = copy.deepcopy(self._rule.state_dict())
        parts.remember_buffers()
        taken = False
        try:
            forward, update = self._ask_rule(inputs, targets)
            outcome = self._differentiate(update)
            reason = _first(guard.judge(outcome) for guard in self.guards)
            if reason is None:
                reason = self._apply(update)
            taken = reason is None
        finally:
            if not taken:
                parts.restore_buffers()
                self._batch_norm.updates = updates
                self._rule.load_state_dict(remembered)
        return outcome, forward.outputs.detach() if taken else None, reason

    def _ask_rule(self, inputs: Tensor, targets: Tensor | None) -> tuple[Forward, Update]:
        self._batch_norm.adapting()
        try:
            with torch.set_grad_enabled(bool(self._started.trainable)):
                forward = self._forward(inputs)
                batch = Batch(inputs, forward.features, forward.outputs, targets, self._forward)
                return forward, self._rule.update(batch)
        finally:
            self._batch_norm.predicting()

    def _differentiate(self, update: Update) -> Outcome:
        """Gradients of a loss, and its two numbers in one read from the device."""
        if not isinstance(update, Tensor) or self._optimizer is None:
            return Outcome(None, None)
        self._optimizer.zero_grad()
        update.backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in self._started.trainable.values() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        loss, gradient_norm = torch.stack([update.detach().double(), norm.double()]).tolist()
        return Outcome(loss, gradient_norm)

    def _apply(self, update: Update) -> str | None:
        """Carry the rule's answer out; the reason where there is nothing to carry out."""
        if isinstance(update, Skip):
            return update.reason
        if isinstance(update, NewHead):
            head = self._stage.require_head()
            with torch.no_grad():
                head.weight.copy_(update.weight)
                if update.bias is not None and head.bias is not None:
                    head.bias.copy_(update.bias)
        elif update is not None and self._optimizer is not None:
            self._optimizer.step()
        elif self._batch_norm.mode == "source":
            return f"{self.method.name} changes nothing"
        return None

    # --- what may not be -------------------------------------------------------------------------

    def _on_device(self, x: object) -> Tensor:
        inputs = inputs_of(x, None if isinstance(x, Tensor) else self._inputs_key)
        inputs = inputs.to(model_device(self._model))
        return inputs.clone() if inputs.is_inference() else inputs

    def _check_source(self, head: str | None, *, allow_mismatch: bool) -> None:
        name = type(self.method).__name__
        if self.source is None and self.method.needs_source:
            raise StatisticsError(
                f"{name} needs source statistics. Collect them once, where the source data lies: "
                f"source = regtta.collect(model, loader), then Adapter(model, {name}(), source)."
            )
        if self.source is not None and not allow_mismatch:
            self.source.check_fingerprint(self._fingerprint)
            self.source.check_head(head or self.source.head)

    def _check_width(self, name: str, head: nn.Linear) -> None:
        if self.source is not None and head.in_features != self.source.dimensions:
            raise HeadMismatchError(
                f"The head {name!r} takes {head.in_features} features, but the statistics are of "
                f"{self.source.dimensions}. Collect them on this model and head."
            )

    def _check_targets(self, targets: Tensor | None) -> None:
        takes, name = self.method.takes_targets, self.method.name
        if targets is not None and not takes:
            raise BatchError(f"{name} adapts without labels, but was given targets. Leave them out.")
        if targets is None and takes:
            raise BatchError(f"{name} learns from labels: call adapt(x, targets=y).")

    def _check_state(self, state: Mapping[str, Any]) -> None:
        own = {"method": described(self.method), "model": self._fingerprint}
        for name, value in own.items():
            if state.get(name) != value:
                raise MismatchError(
                    f"The state is of another {name}: expected {value}, found {state.get(name)}. Make the "
                    f"adapter with the {name} that the stream was begun with."
                )
        if state["tensors"].keys() != self._started.tensors().keys():
            raise MismatchError("The state holds other parameters than this adapter moves.")


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)
