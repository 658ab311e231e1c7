"""Any ``nn.Module`` seen as a feature extractor followed by a linear head.

``f(x) = W g(x) + b``: a tap on the head's input gives the features ``g(x)`` and the outputs in one
forward pass. Nothing of the model is rewritten, and no tap outlives the pass it was opened for.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from regtta.errors import BatchError, HeadError, ModelError
from regtta.standing_in import stand_in

# How torch complains of tensors of different dtypes, by layer and device.
_ABOUT_DTYPES = re.compile(
    r"dtype|data ?type|scalar type|same type|(input|weight|bias|result|output) type|not implemented for '",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Forward:
    """One forward pass: ``features`` (B, D) entering the head, ``outputs`` as the model gave them."""

    features: Tensor
    outputs: Tensor


class RunForward(Protocol):
    """Runs a model, with tensors in place of its own of those names where some are given."""

    def __call__(self, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None, /) -> Forward: ...  # noqa: D102


@dataclass
class _Call:
    """One run of one linear layer, as a probe saw it."""

    name: str
    features: Tensor
    outputs: Tensor


class FeatureModel:
    """``model`` with its head named: call it to get features and outputs together.

    Args:
        model: any module whose output comes from one ``nn.Linear``.
        head: the name of that layer, as in ``model.named_modules()``.
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
        self._tap = _Tap(self.head, exact=exact_head)

    def __call__(self, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Forward:
        """Run the model on ``inputs`` (B, ...), with ``tensors`` in place of its own of those names."""
        return self.by(lambda x: run_model(self.model, x, tensors), inputs)

    def by(self, run: Callable[[Tensor], Tensor], inputs: Tensor) -> Forward:
        """The pass that ``run`` makes of the model, by whatever means."""
        with self._tap as seen:
            outputs = run(inputs)
        return Forward(_only_features(self.model, self.head_name, seen, len(inputs)), outputs)


class _Tap:
    """Sees what enters a linear layer while it is open.

    Args:
        layer: to look at.
        exact: whether the layer runs in its own precision even where the model around it does not: a prediction in
            bfloat16 has no more than three digits.
    """

    def __init__(self, layer: nn.Linear, *, exact: bool) -> None:
        self._layer = layer
        self._exact = exact
        self._seen: list[Tensor] = []

    def __enter__(self) -> list[Tensor]:
        self._seen.clear()
        self._run = self._layer.forward
        self._close = stand_in(self._layer, self._forward)
        return self._seen

    def __exit__(self, *_: object) -> None:
        self._close()

    def _forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        entering = _entering(args, kwargs)
        self._seen.append(entering)
        if not self._exact:
            return self._run(*args, **kwargs)
        with torch.autocast(entering.device.type, enabled=False):
            return self._run(entering.to(self._layer.weight.dtype))


def without_features(model: nn.Module) -> RunForward:
    """``model`` for methods that look at no features: those of its forward passes are (B, 0)."""

    def forward(inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Forward:
        outputs = run_model(model, inputs, tensors)
        return Forward(outputs.new_empty(len(inputs), 0), outputs)

    return forward


def find_head(model: nn.Module, inputs: Tensor) -> str:
    """Name of the linear layer whose output is the model's output, found by one forward pass.

    The output may have been reshaped, squeezed or flattened on the way out, not changed in value.
    The pass runs in eval mode and without gradients; modes and hooks are as before afterwards.

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
            "(a 1×1 convolution on pooled features is the same map) and carry its weights over."
        )
    makers = [call for call in calls if _same_values(call.outputs, outputs)]
    if not makers:
        raise HeadError(
            f"No nn.Linear of {type(model).__name__} gives the model's output of shape "
            f"{tuple(outputs.shape)} unchanged. Pass head=<name> for the layer whose input to take "
            f"as features; {_candidates(model)}"
        )
    name = makers[-1].name
    _only_features(model, name, [c.features for c in calls if c.name == name], len(inputs))
    return name


def head_module(model: nn.Module, name: str) -> nn.Linear:
    """The ``nn.Linear`` called ``name``, or an error that lists the linear layers there are."""
    module = dict(model.named_modules()).get(name)
    if isinstance(module, nn.Linear):
        return module
    found = "nothing" if module is None else type(module).__name__
    raise HeadError(f"Expected nn.Linear at {name!r}, found {found}. Pass head=<name>; {_candidates(model)}")


def linear_layers(model: nn.Module) -> list[str]:
    """Names of all ``nn.Linear`` layers, in the order of ``named_modules``."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def model_device(model: nn.Module) -> torch.device:
    """Where the model's first parameter (or buffer) lies; the CPU for a model without any."""
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")


def run_model(model: nn.Module, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
    """``model(inputs)``, with a clear error where inputs are of the wrong dtype or the answer is not one tensor.

    ``tensors`` stand in for parameters and buffers of those names during the pass. Other errors of the model are raised
    as they are.
    """
    try:
        return call_model(model, inputs, tensors)
    except (RuntimeError, TypeError, ValueError) as error:
        _check_dtype(model, inputs, error)
        raise


def call_model(model: nn.Module, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
    """:func:`run_model` without a look at errors of the model, for compilers, which look at them themselves."""
    outputs = model(inputs) if tensors is None else torch.func.functional_call(model, dict(tensors), (inputs,))
    if isinstance(outputs, Tensor):
        return outputs
    raise ModelError(
        f"Expected the model to return a tensor, found {type(outputs).__name__}. Wrap it in a module "
        "whose forward returns the prediction alone."
    )


def _check_dtype(model: nn.Module, inputs: Tensor, error: Exception) -> None:
    """Raise a :class:`BatchError` from ``error`` where it comes of inputs of another dtype than the parameters'."""
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point() or p.is_complex()]
    if not dtypes or inputs.dtype in dtypes or not _ABOUT_DTYPES.search(str(error)):
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
    """Everything in eval mode inside the block; every module's own mode back after it."""
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
            # Cloned, since a model may go on to change the head's output in place.
            calls.append(_Call(name, _entering(args, kwargs), outputs.clone()))

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


def _entering(args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> Tensor:
    """What a linear layer was called with, by position or by name."""
    return args[0] if args else kwargs["input"]


def _same_values(a: Tensor, b: Tensor) -> bool:
    if a.numel() != b.numel() or a.shape[0] != b.shape[:1].numel():
        return False
    a, b = a.reshape(-1), b.reshape(-1)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _only_features(model: nn.Module, name: str, seen: list[Tensor], rows: int) -> Tensor:
    """The one (B, D) tensor that entered the head, or the error that says why there is none."""
    if len(seen) != 1:
        runs = "does not run" if not seen else f"runs {len(seen)} times"
        raise HeadError(
            f"The head {name!r} {runs} in one forward pass; it must run once. Pass head=<name> of a "
            f"layer that does, or wrap the model so that it does; {_candidates(model)}"
        )
    features = seen[0]
    if features.ndim != 2 or features.shape[0] != rows:
        raise HeadError(
            f"Expected features of shape ({rows}, D) at the head {name!r}, one row a sample, found "
            f"{tuple(features.shape)}. Pool to one vector a sample before the head, or pass "
            f"head=<name> of another layer; {_candidates(model)}"
        )
    return features


def _candidates(model: nn.Module) -> str:
    return f"linear layers here: {linear_layers(model)}."
