"""Search for the head of a model: which affine layers determine its output, and how their positions are pooled."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regtta.errors import HeadError
from regtta.models.features import layer_input, run_model
from regtta.models.heads import (
    FeaturePooling,
    HeadLayout,
    affine_layers,
    list_layers,
    matching_positions,
    pool_positions,
    to_positions,
)
from regtta.models.layer_calls import LayerCall, eval_mode, override_affine_layers
from regtta.models.model_inputs import Inputs, ModelInputs, input_tensors
from regtta.models.outputs import OutputSelection

MAX_LAYERS = 16  # of a head with several layers
_SAME = 1e-3  # difference between outputs that counts as none, relative to that between different samples

logger = logging.getLogger(__name__)


def find_head(
    model: nn.Module,
    inputs: Inputs,
    *,
    named: str | None = None,
    output: OutputSelection | None = None,
    pooling: FeaturePooling | None = None,
) -> str:
    """Return the head of a model, found by forward passes on one batch.

    The head is the last layer that determines the output: the output may be reshaped, pooled, scaled or passed through
    an activation afterwards. If no single layer does, it is the smallest set of layers that do, such as two heads whose
    outputs are concatenated or averaged. Passes run in eval mode; modes and hooks are restored afterwards.

    Args:
        model: the model.
        inputs: a batch of inputs, of at least two different samples if the output is changed after the head.
        named: the head, if it is known; only the pooling of its positions is found.
        output: selection of the prediction from what the model returns.
        pooling: the user's function from the head's input to features ``(B, D)``.

    Returns:
        The head as text, see :mod:`regtta.models.heads`.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1), nn.Softplus())
        >>> find_head(net, torch.randn(2, 3))
        '2'
    """
    if not affine_layers(model):
        raise HeadError(
            f"Expected a linear head, found no nn.Linear in {type(model).__name__}. "
            "regtta needs a model that ends in an nn.Linear or a 1×1 convolution: replace the last layer by one and "
            "copy its weights."
        )
    with eval_mode(model), torch.no_grad():
        search = _Search(model, inputs, output)
        if named is not None:
            return search.with_pooling(HeadLayout.parse(named), custom=pooling is not None)
        found = search.unchanged_output() or search.determining_layers() or search.contributing_layer()
        if found is None:
            raise HeadError(
                f"No nn.Linear of {type(model).__name__} returns the model's output of shape "
                f"{tuple(search.outputs.shape)}, nor determines it. Pass head=<name> of the layer whose input to use "
                f"as features; {list_layers(model)}"
            )
        calls, known = found
        search.check_called_once(calls)
        return str(search.layout(calls, known, custom=pooling is not None))


class _Search:
    """Affine layers of one forward pass, and tests of what they determine."""

    def __init__(self, model: nn.Module, inputs: Inputs, output: OutputSelection | None) -> None:
        self._model, self._inputs, self._output = model, inputs, output
        self._rows = len(inputs)
        self.calls: list[LayerCall] = []
        self.outputs = self._run(inputs, self._record)

    def _record(self, name: str, layer: nn.Module, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        outputs = run(*args, **kwargs)
        if isinstance(outputs, Tensor):  # cloned, since the model may modify them in place
            self.calls.append(LayerCall(len(self.calls), name, layer, layer_input(args, kwargs), outputs.clone()))
        return outputs

    def unchanged_output(self) -> tuple[list[LayerCall], str] | None:
        """Return the last layer that returns the model's output, pooled over positions, and the pooling."""
        for call in reversed(self.calls):
            pooling = self._exact_pooling(call)
            if pooling is not None:
                return [call], pooling
        return None

    def _exact_pooling(self, call: LayerCall) -> str | None:
        """Return the pooling that makes the outputs of a layer those of the model; None if there is none."""
        for suffix in ("", "/time-first"):
            positions = to_positions(call.outputs, self._rows, call.layer, time_first=bool(suffix))
            if positions is None or (suffix and call.outputs.shape[0] == call.outputs.shape[1] == 1):
                continue
            if _same_values(positions, self.outputs):
                return "" if positions.shape[1] == 1 else f"all{suffix}"
            if positions.shape[1] == 1 or self.outputs.numel() != positions[:, 0].numel():
                continue
            for pooling in ("matched",) if self._has_padding else ("last", "first", "mean", "matched"):
                if self._matches(positions, pooling):
                    return f"{pooling}{suffix}"
            if self._has_padding and self._matches(positions, "mean"):
                return f"mean{suffix}"
        return None

    @property
    def _has_padding(self) -> bool:
        """True if sequences may be padded, so that their last position differs from batch to batch."""
        first = input_tensors(self._inputs)[0]
        return isinstance(self._inputs, ModelInputs) or not first.is_floating_point()

    def _matches(self, positions: Tensor, pooling: str) -> bool:
        if pooling == "matched":
            return bool(matching_positions(positions, self.outputs)[1].all())
        pooled = pool_positions(positions, pooling)
        if pooling == "mean":
            return torch.allclose(pooled.reshape(-1), self.outputs.reshape(-1), rtol=1e-4, atol=1e-7)
        return _same_values(pooled, self.outputs)

    # --- layers that determine the output --------------------------------------------------------

    def determining_layers(self) -> tuple[list[LayerCall], None] | None:
        """Return the smallest set of last layers whose outputs determine those of the model.

        The model runs on other samples, with the outputs of the layers replaced by those on the batch: it must return
        its outputs on the batch.
        """
        other = _reordered(self._inputs)
        distance = _distance(self._run(other), self.outputs)
        scale = float(self.outputs.abs().nan_to_num().max()) if self.outputs.numel() else 0.0
        if not distance > 1e-6 * scale:  # the model returns the same for all samples
            return None

        def determine(calls: Sequence[LayerCall]) -> bool:
            return _distance(self._run_with_outputs(other, calls), self.outputs) <= _SAME * distance

        if not determine(self.calls):
            return None
        low, high = 1, len(self.calls)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if determine(self.calls[-middle:]) else (middle + 1, high)
        chosen = self.calls[-low:]
        for call in chosen[1:]:
            fewer = [other_call for other_call in chosen if other_call is not call]
            if determine(fewer):
                chosen = fewer
        return (chosen, None) if len(chosen) <= MAX_LAYERS else None

    def contributing_layer(self) -> tuple[list[LayerCall], None] | None:
        """Return the last layer that changes the model's outputs and has as many, per sample or per position.

        For models that add something to the outputs of the head or scale them, such as the mean and the standard
        deviation of the input series.
        """
        for call in reversed(self.calls):
            width = self.outputs.numel() // max(1, self._rows)
            same_width = call.outputs.numel() == self.outputs.numel() or call.outputs.shape[-1] == width
            if not same_width or not call.outputs.is_floating_point():
                continue
            moved = LayerCall(call.index, call.name, call.layer, call.inputs, call.outputs + 1)
            if bool((self._run_with_outputs(self._inputs, [moved]) != self.outputs).any()):
                logger.info("The head is %s: the model's outputs depend on it, but not on it alone.", call.name)
                return [call], None
        return None

    def check_called_once(self, calls: Sequence[LayerCall]) -> None:
        """Raise a HeadError if a layer of the head runs more than once."""
        for name in dict.fromkeys(call.name for call in calls):
            count = sum(call.name == name for call in self.calls)
            if count != 1:
                raise HeadError(
                    f"The head {name!r} runs {count} times in one forward pass; it must run once. Pass head=<name> of "
                    f"a layer that does, or wrap the model so that it does; {list_layers(self._model)}"
                )

    # --- pooling ---------------------------------------------------------------------------------

    def with_pooling(self, head: HeadLayout, *, custom: bool) -> str:
        """Return a head with the pooling of its positions; unchanged if it has one or needs none."""
        calls = [call for call in self.calls if call.name in head.names]
        if head.pooling or len(calls) != len(head.names):
            return str(head)
        known = self._exact_pooling(calls[0]) if len(calls) == 1 else None
        found = self.layout(calls, known, custom=custom)
        return str(HeadLayout(head.groups, found.pooling, found.time_first))

    def layout(self, calls: Sequence[LayerCall], pooling: str | None, *, custom: bool) -> HeadLayout:
        """Return the layout of a head that consists of the layers of ``calls``; its pooling is found if it is None."""
        groups: list[list[LayerCall]] = []
        for call in calls:
            same = next((group for group in groups if _same_tensor(group[0].inputs, call.inputs)), None)
            groups.append([call]) if same is None else same.append(call)
        if custom:
            pooling = "custom"
        elif pooling is None:
            found = {self._pooling_by_gradient(call) for call in calls}
            pooling = found.pop() if len(found) == 1 else None
        if pooling is None:
            shapes = {call.name: tuple(call.inputs.shape) for call in calls}
            raise HeadError(
                f"Expected features of shape ({self._rows}, D) at the head, one row per sample, found {shapes}. The "
                "model pools them in a way that is not known. Pass features=<callable from this tensor to (B, D)>, or "
                f"head=<name> of another layer; {list_layers(self._model)}"
            )
        kind, _, time_first = pooling.partition("/")
        return HeadLayout(tuple(tuple(call.name for call in group) for group in groups), kind, bool(time_first))

    def _pooling_by_gradient(self, call: LayerCall) -> str | None:
        """Return the pooling of the positions of a layer, from the positions that the model's output depends on."""
        for suffix in ("", "/time-first"):
            positions = to_positions(call.outputs, self._rows, call.layer, time_first=bool(suffix))
            if positions is None:
                continue
            if positions.shape[1] == 1:
                return ""
            if self.outputs.numel() == call.outputs.numel():
                return f"all{suffix}"
            gradient = to_positions(self._gradient(call), self._rows, call.layer, time_first=bool(suffix))
            pooling = None if gradient is None else _pooled_by(gradient)
            if pooling is not None:
                return pooling + suffix
        return None

    @torch.enable_grad()
    def _gradient(self, call: LayerCall) -> Tensor:
        leaf = call.outputs.detach().clone().requires_grad_()
        moved = LayerCall(call.index, call.name, call.layer, call.inputs, leaf)
        outputs = self._run_with_outputs(self._inputs, [moved])
        if not outputs.requires_grad:
            return torch.zeros_like(leaf)
        (gradient,) = torch.autograd.grad(outputs.sum(), leaf, allow_unused=True)
        return torch.zeros_like(leaf) if gradient is None else gradient

    # --- forward passes --------------------------------------------------------------------------

    def _run(self, inputs: Inputs, handle: Callable[..., Tensor] | None = None) -> Tensor:
        with override_affine_layers(self._model, handle):
            return run_model(self._model, inputs, None, self._output)

    def _run_with_outputs(self, inputs: Inputs, calls: Sequence[LayerCall]) -> Tensor:
        """Run the model with the outputs of ``calls`` in place of those that their layers compute."""
        given = {call.index: call.outputs for call in calls}
        count = iter(range(2**63))

        def replace(_: str, __: nn.Module, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            outputs = run(*args, **kwargs)
            if not isinstance(outputs, Tensor):
                return outputs
            known = given.get(next(count))
            return outputs if known is None or known.shape != outputs.shape else known.clone()

        return self._run(inputs, replace)


def _reordered(inputs: Inputs) -> Inputs:
    """Return other samples of the same shapes: in reverse order, or a single one with its values in reverse order."""

    def reverse(tensor: Tensor) -> Tensor:
        return tensor.flip(0) if len(tensor) > 1 else tensor.flip(tuple(range(1, tensor.ndim)))

    return reverse(inputs) if isinstance(inputs, Tensor) else inputs.map(reverse)


def _pooled_by(gradient: Tensor) -> str | None:
    """Return the pooling with this gradient with respect to the positions, ``(B, P, O)``; None for any other."""
    sizes = gradient.abs().sum(dim=2)
    used = (sizes > 0).any(dim=0)
    if not bool(used.any()):
        return None
    if int(used.sum()) == 1:
        return "last" if bool(used[-1]) else "first" if bool(used[0]) else None
    nonzero = gradient[gradient != 0]
    equal = torch.allclose(nonzero, nonzero[:1].expand_as(nonzero), rtol=1e-3, atol=0.0)
    return "mean" if equal else None


def _distance(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    return float((a.double() - b.double()).nan_to_num().abs().max()) if a.numel() else 0.0


def _same_values(a: Tensor, b: Tensor) -> bool:
    if a.numel() != b.numel():
        return False
    a, b = a.reshape(-1), b.reshape(-1)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _same_tensor(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()
