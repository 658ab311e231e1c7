"""The head of a model: the affine layers that map its features to its outputs.

A head is written as text, in ``SourceStatistics.head`` and ``head=``: the name of a layer, ``"fc"``; layers with the
same input joined by ``&``, ``"mean&variance"``; layers with inputs of their own, whose features are concatenated,
joined by ``+``, ``"head+head_dist"``. If layers run at several positions of a sample (tokens, time steps, pixels), the
pooling of the positions follows in brackets: ``"score[last]"``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from regtta.errors import HeadError, OptionError

FeaturePooling = Callable[[Tensor], Tensor]

# "matched" takes the position of each sample at which the head's output is the model's output, such as the last token
# that is not padding; "all" takes every position as a sample of its own; "custom" calls the user's function.
POOLINGS = ("first", "last", "mean", "matched", "all", "custom")
TIME_FIRST = "/time-first"
_HEAD = re.compile(r"(?P<names>.*?)(?:\[(?P<pooling>[a-z]+)(?P<time_first>/time-first)?\])?", re.DOTALL)


@dataclass(frozen=True)
class HeadLayout:
    """Layers of a head and the pooling of their inputs.

    Attributes:
        groups: names of the layers; those of one group have the same input.
        pooling: one of :data:`POOLINGS`; empty if the layers run once per sample.
        time_first: True if positions come before samples in the layers' inputs, ``(T, B, D)``.

    Example:
        >>> HeadLayout.parse("head+head_dist[mean]")
        HeadLayout(groups=(('head',), ('head_dist',)), pooling='mean', time_first=False)
        >>> str(HeadLayout((("mean", "variance"),)))
        'mean&variance'
    """

    groups: tuple[tuple[str, ...], ...]
    pooling: str = ""
    time_first: bool = False

    @classmethod
    def parse(cls, text: str) -> "HeadLayout":
        """Return the layout that ``text`` describes; raise a HeadError if the pooling is unknown."""
        match = _HEAD.fullmatch(text) if isinstance(text, str) else None
        pooling = (match and match["pooling"]) or ""
        if match is None or (pooling and pooling not in POOLINGS):
            raise HeadError(
                f"Expected a head such as 'fc' or 'score[last]', found {text!r}. Pass head=<name> of a layer; the "
                f"pooling in brackets is one of {', '.join(POOLINGS)}."
            )
        groups = tuple(tuple(part.split("&")) for part in match["names"].split("+"))
        return cls(groups, pooling, match["time_first"] is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all layers."""
        return tuple(name for group in self.groups for name in group)

    def __str__(self) -> str:
        names = "+".join("&".join(group) for group in self.groups)
        return names + (f"[{self.pooling}{TIME_FIRST if self.time_first else ''}]" if self.pooling else "")


class Head:
    """The head of one model.

    Args:
        model: the model.
        text: description of the head, such as ``"fc"``.

    Attributes:
        layout: the layers and their pooling.
        modules: the layers.
        linear: the affine map from features to outputs as one ``nn.Linear``: the layer itself if it is the only one and
            an ``nn.Linear``, otherwise a copy of the weights.
    """

    def __init__(self, model: nn.Module, text: str) -> None:
        self.layout = HeadLayout.parse(text)
        self.modules = {name: affine_layer(model, name) for name in self.layout.names}
        only = next(iter(self.modules.values()))
        self.is_linear = len(self.modules) == 1 and isinstance(only, nn.Linear)
        self.linear: nn.Linear = only if self.is_linear else self._as_linear()  # type: ignore[assignment]

    @property
    def module(self) -> nn.Module:
        """The layer, or a list of the layers if there are several."""
        return nn.ModuleList(self.modules.values()) if len(self.modules) > 1 else next(iter(self.modules.values()))

    @torch.no_grad()
    def _as_linear(self) -> nn.Linear:
        """Return the layers as one linear layer on the concatenated features of all groups."""
        blocks, biases = [], []
        for group in self.layout.groups:
            parts = [affine_map(self.modules[name]) for name in group]
            blocks.append(torch.cat([weight for weight, _ in parts]))
            biases += [bias for _, bias in parts]
        weight = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
        linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
        linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(torch.cat(biases))
        return linear.requires_grad_(False)


def is_affine_layer(module: nn.Module) -> bool:
    """Return True for ``nn.Linear``, 1×1 convolutions, and layers of other libraries with in- and out_features.

    Such as the linear layers that peft wraps.
    """
    if isinstance(module, _ConvNd):
        simple = set(module.kernel_size) == {1} and set(module.stride) == {1} and module.groups == 1
        unpadded = isinstance(module.padding, str) or not any(module.padding)
        return simple and unpadded and not isinstance(module, _ConvTransposeNd)
    widths = (getattr(module, "in_features", None), getattr(module, "out_features", None))
    return isinstance(module, nn.Linear) or (
        all(isinstance(width, int) for width in widths) and not isinstance(module, nn.Bilinear)
    )


def affine_layers(model: nn.Module) -> list[str]:
    """Return the names of all layers that can be a head, in the order of ``named_modules``."""
    return [name for name, module in model.named_modules() if is_affine_layer(module)]


def affine_layer(model: nn.Module, name: str) -> nn.Module:
    """Return the layer called ``name``; raise a HeadError that lists the layers if it cannot be a head."""
    module: nn.Module | None = dict(model.named_modules()).get(name)
    if module is not None and is_affine_layer(module):
        return module
    found = "nothing" if module is None else type(module).__name__
    raise HeadError(
        f"Expected nn.Linear at {name!r}, found {found}. Pass head=<name>; {list_layers(model)} A 1×1 convolution is "
        "accepted as well."
    )


def list_layers(model: nn.Module) -> str:
    """Return a sentence with the names of the layers that can be a head."""
    return f"linear layers here: {affine_layers(model)}."


def affine_map(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weight ``(O, D)`` and bias ``(O,)`` of an affine layer, computed from its outputs.

    Example:
        >>> layer = nn.Conv2d(3, 2, 1)
        >>> weight, bias = affine_map(layer)
        >>> torch.equal(weight, layer.weight[:, :, 0, 0]), torch.equal(bias, layer.bias)
        (True, True)
    """
    tensor = next(module.parameters())
    if isinstance(module, nn.Linear | _ConvNd):
        weight = module.weight.detach().flatten(1)
        bias = module.bias
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach()
    width = input_width(module)
    dtype = tensor.dtype if tensor.is_floating_point() else torch.float32
    probe = torch.cat([torch.zeros(1, width), torch.eye(width)]).to(tensor.device, dtype)
    outputs = module(probe)
    return (outputs[1:] - outputs[0]).T.contiguous(), outputs[0]


def input_width(module: nn.Module) -> int:
    """Return the number of features that an affine layer takes."""
    return int(module.in_channels if isinstance(module, _ConvNd) else module.in_features)  # type: ignore[arg-type]


def to_positions(values: Tensor, rows: int, layer: nn.Module, *, time_first: bool = False) -> Tensor | None:
    """Return a layer's inputs or outputs as ``(B, P, D)``, P positions per sample; None if they have no such form.

    Args:
        values: inputs or outputs of ``layer``: ``(B, ..., D)``, ``(T, B, D)`` with ``time_first``, ``(B*P, D)``, or
            ``(B, D, ...)`` for a convolution.
        rows: the number of samples B.
        layer: the layer.
        time_first: True if positions come before samples.
    """
    if isinstance(layer, _ConvNd):
        if values.ndim == len(layer.kernel_size) + 2 and len(values) == rows:
            return values.flatten(2).transpose(1, 2)
        return None
    if time_first:
        return values.transpose(0, 1) if values.ndim == 3 and values.shape[1] == rows else None
    if values.ndim >= 2 and len(values) == rows:
        return values.reshape(rows, -1, values.shape[-1])
    if values.ndim == 2 and rows and len(values) % rows == 0:
        return values.reshape(rows, -1, values.shape[-1])
    return None


def pool_positions(features: Tensor, pooling: str, matched: Tensor | None = None) -> Tensor:
    """Return features ``(B, D)`` of positions ``(B, P, D)``; all of them, ``(B, P, D)``, for ``"all"``.

    Args:
        features: the features of every position.
        pooling: how to pool them.
        matched: position of each sample, ``(B,)``, for ``"matched"``.
    """
    if pooling == "mean":
        return features.mean(dim=1)
    if pooling == "all":
        return features
    if pooling == "matched" and matched is not None:
        return features[torch.arange(len(features), device=features.device), matched]
    return features[:, -1 if pooling == "last" else 0]


def matching_positions(positions: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last position of each sample whose values equal the output, ``(B,)``, and whether there is one.

    Args:
        positions: outputs of the head, ``(B, P, O)``.
        outputs: outputs of the model with B * O values.
    """
    wanted = outputs.reshape(len(positions), 1, -1)
    equal = ((positions == wanted) | (positions.isnan() & wanted.isnan())).all(dim=-1)
    last = positions.shape[1] - 1 - equal.flip(1).int().argmax(dim=1)
    return last, equal.any(dim=1)


def check_pooling(pooling: object) -> FeaturePooling | None:
    """Return a valid ``features=`` argument, or raise an OptionError."""
    if pooling is None or callable(pooling):
        return pooling
    raise OptionError(
        f"Expected features to be a callable from the head's input to features (B, D), found {pooling!r:.80}. Omit it "
        "to pool features as the model does."
    )
