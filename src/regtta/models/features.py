"""Any ``nn.Module`` as a feature extractor followed by a linear head.

``f(x) = W g(x) + b``: overriding the head's ``forward`` for one pass yields the features ``g(x)`` together with the
outputs. The override is removed after the pass.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regtta.errors import BatchError, HeadError, ModelError

# Matches torch's error messages about mismatched dtypes, which differ by layer and device.
_DTYPE_ERROR = re.compile(
    r"dtype|data ?type|scalar type|same type|(input|weight|bias|result|output) type|not implemented for '",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Forward:
    """Result of one forward pass: ``features`` (B, D), the head's input, and the model's ``outputs``."""

    features: Tensor
    outputs: Tensor


class RunForward(Protocol):
    """Callable that runs a model, optionally with replacements for its parameters and buffers by name."""

    def __call__(self, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None, /) -> Forward: ...  # noqa: D102


@dataclass
class _Call:
    """Recorded call of a linear layer."""

    name: str
    features: Tensor
    outputs: Tensor


class FeatureModel:
    """Wrapper of a model with a known head that returns features and outputs of a forward pass.

    Args:
        model: any module whose output is computed by one ``nn.Linear``.
        head: name of that layer in ``model.named_modules()``.
        exact_head: run that layer in its own precision even under autocast.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
        >>> forward = FeatureModel(net, "2")(torch.zeros(4, 3))
        >>> forward.features.shape, forward.outputs.shape
        (torch.Size([4, 5]), torch.Size([4, 1]))
    """

    def __init__(self, model: nn.Module, head: str, *, exact_head: bool = False) -> None:
        self.model = model
        self.head_name = head
        self.head = head_module(model, head)
        self._recorder = _InputRecorder(self.head, exact=exact_head)

    def __call__(self, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Forward:
        """Run the model on ``inputs`` (B, ...), with ``tensors`` replacing its parameters and buffers by name."""
        return self.run_with(lambda x: run_model(self.model, x, tensors), inputs)

    def run_with(self, run: Callable[[Tensor], Tensor], inputs: Tensor) -> Forward:
        """Return features and outputs of a forward pass of the model that ``run(inputs)`` executes."""
        with self._recorder as recorded:
            outputs = run(inputs)
        return Forward(_only_features(self.model, self.head_name, recorded, len(inputs)), outputs)


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


class _InputRecorder:
    """Context manager that records the inputs of a linear layer.

    Args:
        layer: the layer whose inputs are recorded.
        exact: run the layer in its own precision even if the rest of the model runs under autocast: a bfloat16
            prediction has at most three significant digits.
    """

    def __init__(self, layer: nn.Linear, *, exact: bool) -> None:
        self._layer = layer
        self._exact = exact
        self._recorded: list[Tensor] = []

    def __enter__(self) -> list[Tensor]:
        self._recorded.clear()
        self._run = self._layer.forward
        self._close = override_forward(self._layer, self._forward)
        return self._recorded

    def __exit__(self, *_: object) -> None:
        self._close()

    def _forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        inputs = _layer_input(args, kwargs)
        self._recorded.append(inputs)
        if not self._exact:
            return self._run(*args, **kwargs)
        with torch.autocast(inputs.device.type, enabled=False):
            return self._run(inputs.to(self._layer.weight.dtype))


def forward_without_features(model: nn.Module) -> RunForward:
    """Return a forward function for methods that need no features: the features have shape (B, 0)."""

    def forward(inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Forward:
        outputs = run_model(model, inputs, tensors)
        return Forward(outputs.new_empty(len(inputs), 0), outputs)

    return forward


def find_head(model: nn.Module, inputs: Tensor) -> str:
    """Return the name of the linear layer whose output is the model's output, found by one forward pass.

    The output may be reshaped, squeezed or flattened after that layer, but not changed in value. The pass runs in eval
    mode and without gradients; modes and hooks are restored afterwards.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
        >>> find_head(net, torch.zeros(2, 3))
        '2'
    """
    calls, outputs = _probe(model, inputs)
    if not linear_layers(model):
        raise HeadError(
            f"Expected a linear head, found no nn.Linear in {type(model).__name__}. "
            "regtta needs a model that ends in one nn.Linear: replace the last layer by one "
            "(a 1×1 convolution on pooled features is equivalent) and copy its weights."
        )
    candidates = [call for call in calls if _same_values(call.outputs, outputs)]
    if not candidates:
        raise HeadError(
            f"No nn.Linear of {type(model).__name__} returns the model's output of shape "
            f"{tuple(outputs.shape)} unchanged. Pass head=<name> of the layer whose input to use "
            f"as features; {_candidates(model)}"
        )
    name = candidates[-1].name
    _only_features(model, name, [c.features for c in calls if c.name == name], len(inputs))
    return name


def head_module(model: nn.Module, name: str) -> nn.Linear:
    """Return the ``nn.Linear`` called ``name``; raise a HeadError that lists the linear layers if there is none."""
    module = dict(model.named_modules()).get(name)
    if isinstance(module, nn.Linear):
        return module
    found = "nothing" if module is None else type(module).__name__
    raise HeadError(f"Expected nn.Linear at {name!r}, found {found}. Pass head=<name>; {_candidates(model)}")


def linear_layers(model: nn.Module) -> list[str]:
    """Return the names of all ``nn.Linear`` layers, in the order of ``named_modules``."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def model_device(model: nn.Module) -> torch.device:
    """Return the device of the model's first parameter (or buffer); the CPU for a model without any."""
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")


def run_model(model: nn.Module, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
    """Return ``model(inputs)``; raise a clear error if the inputs' dtype is wrong or the output is not a tensor.

    ``tensors`` replace parameters and buffers by name during the pass. Other errors of the model propagate unchanged.
    """
    try:
        return call_model(model, inputs, tensors)
    except (RuntimeError, TypeError, ValueError) as error:
        _check_dtype(model, inputs, error)
        raise


def call_model(model: nn.Module, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
    """Return ``model(inputs)`` without translating its errors, for compilers, which handle exceptions themselves."""
    outputs = model(inputs) if tensors is None else torch.func.functional_call(model, dict(tensors), (inputs,))
    if isinstance(outputs, Tensor):
        return outputs
    raise ModelError(
        f"Expected the model to return a tensor, found {type(outputs).__name__}. Wrap it in a module "
        "whose forward returns only the prediction."
    )


def _check_dtype(model: nn.Module, inputs: Tensor, error: Exception) -> None:
    """Raise a :class:`BatchError` from ``error`` if it is due to inputs of another dtype than the parameters."""
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point() or p.is_complex()]
    if not dtypes or inputs.dtype in dtypes or not _DTYPE_ERROR.search(str(error)):
        return
    wanted = str(dtypes[0]).removeprefix("torch.")
    method = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat16"}.get(wanted)
    raise BatchError(
        f"The model cannot take inputs of {inputs.dtype}: its parameters are of {dtypes[0]} "
        f"({type(error).__name__}: {str(error).splitlines()[0]}). Convert the inputs first: "
        + (f"x.{method}()." if method else f"x.to({dtypes[0]}).")
    ) from error


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Set all modules to eval mode inside the block and restore each module's mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _probe(model: nn.Module, inputs: Tensor) -> tuple[list[_Call], Tensor]:
    calls: list[_Call] = []

    def recorder(name: str) -> Callable[..., None]:
        def record(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], outputs: Tensor) -> None:
            # Cloned, since the model may modify the head's output in place.
            calls.append(_Call(name, _layer_input(args, kwargs), outputs.clone()))

        return record

    handles = [
        module.register_forward_hook(recorder(name), with_kwargs=True)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with eval_mode(model), torch.no_grad():
            return calls, run_model(model, inputs)
    finally:
        for handle in handles:
            handle.remove()


def _layer_input(args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> Tensor:
    """Return the input of a linear layer, passed by position or by name."""
    return args[0] if args else kwargs["input"]


def _same_values(a: Tensor, b: Tensor) -> bool:
    if a.numel() != b.numel() or a.shape[0] != b.shape[:1].numel():
        return False
    a, b = a.reshape(-1), b.reshape(-1)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _only_features(model: nn.Module, name: str, recorded: list[Tensor], rows: int) -> Tensor:
    """Return the single head input (B, D) of a forward pass; raise a HeadError if there is none or several."""
    if len(recorded) != 1:
        runs = "does not run" if not recorded else f"runs {len(recorded)} times"
        raise HeadError(
            f"The head {name!r} {runs} in one forward pass; it must run once. Pass head=<name> of a "
            f"layer that does, or wrap the model so that it does; {_candidates(model)}"
        )
    features = recorded[0]
    if features.ndim != 2 or features.shape[0] != rows:
        raise HeadError(
            f"Expected features of shape ({rows}, D) at the head {name!r}, one row per sample, found "
            f"{tuple(features.shape)}. Pool to one vector per sample before the head, or pass "
            f"head=<name> of another layer; {_candidates(model)}"
        )
    return features


def _candidates(model: nn.Module) -> str:
    return f"linear layers here: {linear_layers(model)}."
