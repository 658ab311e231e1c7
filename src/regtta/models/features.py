"""Any ``nn.Module`` as a feature extractor followed by an affine head.

``f(x) = W g(x) + b``: overriding the head's ``forward`` for one pass yields the features ``g(x)`` together with the
outputs. The override is removed after the pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regtta.errors import HeadError
from regtta.models.call_errors import explain_call_error
from regtta.models.given_options import call_given
from regtta.models.heads import (
    FeaturePooling,
    Head,
    input_width,
    list_layers,
    matching_positions,
    pool_positions,
    to_positions,
)
from regtta.models.model_inputs import Inputs
from regtta.models.outputs import OutputSelection, select_output


@dataclass(frozen=True)
class Forward:
    """Result of one forward pass.

    Attributes:
        features: inputs of the head, ``(B, D)``; ``(B, T, D)`` for a model with one output per step of a sequence.
        outputs: predictions of the model.
    """

    features: Tensor
    outputs: Tensor

    @property
    def flat_features(self) -> Tensor:
        """Features ``(N, D)``, one row for each sample or for each step of each sequence."""
        return self.features if self.features.ndim == 2 else self.features.flatten(0, -2)


class RunForward(Protocol):
    """Callable that runs a model, optionally with replacements for its parameters and buffers by name."""

    def __call__(self, inputs: Inputs, tensors: Mapping[str, Tensor] | None = None, /) -> Forward: ...  # noqa: D102


class FeatureModel:
    """Wrapper of a model with a known head that returns features and outputs of a forward pass.

    Args:
        model: any module whose output is computed by affine layers, its head.
        head: the head, as :func:`regtta.models.find_head` returns it: the name of a layer in ``model.named_modules()``,
            or several of them, with their pooling.
        output: selection of the prediction from what the model returns.
        pooling: maps the input of the head to features ``(B, D)``, for a head with the pooling ``custom``.
        exact_head: run the head in its own precision even under autocast.

    Attributes:
        head: the head as one linear layer.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
        >>> forward = FeatureModel(net, "2")(torch.zeros(4, 3))
        >>> forward.features.shape, forward.outputs.shape
        (torch.Size([4, 5]), torch.Size([4, 1]))
    """

    def __init__(
        self,
        model: nn.Module,
        head: str,
        *,
        output: OutputSelection | None = None,
        pooling: FeaturePooling | None = None,
        exact_head: bool = False,
    ) -> None:
        self.model = model
        self.head_name = head
        self._head = found = Head(model, head)
        self.head = found.linear
        self._output = output
        self._pooling = _check_pooling(pooling, head, found.layout.pooling)
        # The layers of a group have the same input.
        self._recorders = [CallRecorder(found.modules[group[0]], exact=exact_head) for group in found.layout.groups]

    def __call__(self, inputs: Inputs, tensors: Mapping[str, Tensor] | None = None) -> Forward:
        """Run the model on ``inputs`` (B, ...), with ``tensors`` replacing its parameters and buffers by name."""
        return self.run_with(lambda x: run_model(self.model, x, tensors, self._output), inputs)

    def run_with(self, run: Callable[[Inputs], Tensor], inputs: Inputs) -> Forward:
        """Return features and outputs of a forward pass of the model that ``run(inputs)`` executes."""
        for recorder in self._recorders:
            recorder.begin()
        try:
            outputs = run(inputs)
        finally:
            for recorder in self._recorders:
                recorder.end()
        if len(self._recorders) == 1:
            return Forward(self._features(self._recorders[0], len(inputs), outputs), outputs)
        parts = [self._features(recorder, len(inputs), outputs) for recorder in self._recorders]
        return Forward(torch.cat(parts, dim=-1), outputs)

    def _features(self, recorder: "CallRecorder", rows: int, outputs: Tensor) -> Tensor:
        """Return the features ``(B, D)`` of the single call that was recorded, or ``(B, T, D)``."""
        if len(recorder.inputs) != 1:
            runs = "does not run" if not recorder.inputs else f"runs {len(recorder.inputs)} times"
            raise HeadError(
                f"The head {self.head_name!r} {runs} in one forward pass; it must run once. Pass head=<name> of a "
                f"layer that does, or wrap the model so that it does; {list_layers(self.model)}"
            )
        layout, values = self._head.layout, recorder.inputs[0]
        if values.ndim == 2 and len(values) == rows and not layout.pooling:
            return values
        if self._pooling is not None:
            pooled = call_given("features", self._pooling, values)
            return _check_features(pooled, rows, input_width(recorder.layer))
        positions = to_positions(values, rows, recorder.layer, time_first=layout.time_first)
        if positions is None or (positions.shape[1] != 1 and not layout.pooling):
            raise HeadError(
                f"Expected features of shape ({rows}, D) at the head {self.head_name!r}, one row per sample, found "
                f"{tuple(values.shape)}. Say how the model pools them, head='{self.head_name}[last]' (or first, mean, "
                f"all), pass features=<callable from this tensor to (B, D)>, or head=<name> of another layer; "
                f"{list_layers(self.model)}"
            )
        matched = None
        if layout.pooling == "matched":
            matched = self._matched(recorder, rows, outputs)
        return pool_positions(positions, layout.pooling, matched)

    def _matched(self, recorder: "CallRecorder", rows: int, outputs: Tensor) -> Tensor:
        positions = to_positions(recorder.outputs[0], rows, recorder.layer, time_first=self._head.layout.time_first)
        if positions is not None and outputs.numel() == positions[:, 0].numel():
            matched, found = matching_positions(positions, outputs)
            if bool(found.all()):
                return matched
        raise HeadError(
            f"No position of the head {self.head_name!r} has the output of the model on this batch. Pass "
            "features=<callable from the head's input to features (B, D)>."
        )


def override_forward(module: nn.Module, forward: Callable[..., Any]) -> Callable[[], None]:
    """Override the module's ``forward`` and return a function that removes the override.

    Hooks of the module are still called, and removal restores an earlier override.

    Example:
        >>> import torch
        >>> layer = nn.Linear(2, 1)
        >>> end = override_forward(layer, lambda x: x + 1)
        >>> layer(torch.zeros(1))
        tensor([1.])
        >>> end()
        >>> "forward" in vars(layer)
        False
    """
    own = vars(module).get("forward")
    vars(module)["forward"] = forward

    def end() -> None:
        del vars(module)["forward"]
        if own is not None:
            vars(module)["forward"] = own

    return end


def layer_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the input of a layer, passed by position or by name."""
    return args[0] if args else next(iter(kwargs.values()))  # type: ignore[no-any-return]


class CallRecorder:
    """Records inputs and outputs of a layer between :meth:`begin` and :meth:`end`.

    Args:
        layer: the layer.
        exact: run the layer in its own precision even if the rest of the model runs under autocast: a bfloat16
            prediction has at most three significant digits.
    """

    def __init__(self, layer: nn.Module, *, exact: bool) -> None:
        self.layer = layer
        self._exact = exact
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []

    def begin(self) -> None:
        """Start to record."""
        self.inputs, self.outputs = [], []
        self._run = self.layer.forward
        self.end = override_forward(self.layer, self._forward)

    def _forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        inputs = layer_input(args, kwargs)
        self.inputs.append(inputs)
        if not self._exact:
            outputs: Tensor = self._run(*args, **kwargs)
        else:
            with torch.autocast(inputs.device.type, enabled=False):
                outputs = self._run(inputs.to(next(self.layer.parameters()).dtype))
        self.outputs.append(outputs)
        return outputs


def _check_pooling(pooling: FeaturePooling | None, head: str, needed: str) -> FeaturePooling | None:
    if needed == "custom" and pooling is None:
        raise HeadError(
            f"The features at the head {head!r} are computed by a function of yours: pass it again, features=<callable "
            "from the head's input to features (B, D)>."
        )
    return pooling if needed == "custom" else None


def _check_features(features: object, rows: int, width: int) -> Tensor:
    if isinstance(features, Tensor) and tuple(features.shape) == (rows, width):
        return features
    found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
    raise HeadError(
        f"Expected the callable features= to return features of shape ({rows}, {width}), one row per sample and as "
        f"many columns as the head takes, found {found}."
    )


def forward_without_features(model: nn.Module, output: OutputSelection | None = None) -> RunForward:
    """Return a forward function for methods that need no features: the features have shape (B, 0)."""

    def forward(inputs: Inputs, tensors: Mapping[str, Tensor] | None = None) -> Forward:
        outputs = run_model(model, inputs, tensors, output)
        return Forward(outputs.new_empty(len(inputs), 0), outputs)

    return forward


def run_model(
    model: nn.Module,
    inputs: Inputs,
    tensors: Mapping[str, Tensor] | None = None,
    output: OutputSelection | None = None,
) -> Tensor:
    """Return the prediction of the model; raise a clear error if inputs or output are not of the expected form.

    ``tensors`` replace parameters and buffers by name during the pass. Other errors of the model propagate unchanged.
    """
    try:
        return _call_model(model, inputs, tensors, output)
    except (RuntimeError, TypeError, ValueError) as error:
        explain_call_error(model, inputs, error)
        raise


def _call_model(
    model: nn.Module,
    inputs: Inputs,
    tensors: Mapping[str, Tensor] | None = None,
    output: OutputSelection | None = None,
) -> Tensor:
    """Return the prediction of the model; errors propagate unchanged."""
    args, kwargs = ((inputs,), {}) if isinstance(inputs, Tensor) else (inputs.args, inputs.kwargs)
    if tensors is None:
        returned: Any = model(*args, **kwargs)
    else:
        returned = torch.func.functional_call(model, dict(tensors), args, kwargs)
    return returned if output is None and isinstance(returned, Tensor) else select_output(returned, output)
