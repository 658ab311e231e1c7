"""Streams to attack, and changes to their states that no running stream would write."""

import copy
import functools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import torch

import regtta
from helpers import small_models
from helpers.attaching import attach
from regtta import guards
from regtta.methods import Sum
from regtta.persistence.state_files import write_state

STREAM = small_models.table(30 * 40, shift=2.0, scale=1.5, seed=2).split(40)


@dataclass(frozen=True)
class AttackedStream:
    """Stream whose state is attacked.

    Attributes:
        make: makes the adapter.
        batches: number of batches before the state is taken.
    """

    make: Callable[[], regtta.Adapter]
    batches: int = 3


@functools.cache
def _source() -> tuple[torch.nn.Module, regtta.SourceStatistics]:
    model = small_models.mlp()
    return model, regtta.collect(model, small_models.table(400).split(50))


def _adapter(method: regtta.methods.Method, **options: object) -> regtta.Adapter:
    return regtta.Adapter(*(_source()[0], method, _source()[1]), **options)


def _noisy(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)


_ADAM = functools.partial(torch.optim.Adam, fused=True)
_SGD = functools.partial(torch.optim.SGD, momentum=0.9, fused=True)

STREAMS: dict[str, AttackedStream] = {
    "ssa": AttackedStream(lambda: _adapter(regtta.SSA(k=4))),
    "ssa before its first step": AttackedStream(lambda: _adapter(regtta.SSA(k=4)), batches=0),
    "ssa, safe": AttackedStream(lambda: _adapter(regtta.SSA(k=4, lr=1e-2), guards=guards.SAFE), batches=26),
    "ssa, extractor, adamw": AttackedStream(
        lambda: _adapter(regtta.SSA(k=4, optimizer="adamw", trainable="extractor"))
    ),
    "ssa, rmsprop": AttackedStream(lambda: _adapter(regtta.SSA(k=4, optimizer="rmsprop"))),
    "ssa, sgd": AttackedStream(lambda: _adapter(regtta.SSA(k=4, optimizer="sgd"))),
    "ssa, own Adam, fused": AttackedStream(lambda: _adapter(regtta.SSA(k=4, optimizer=_ADAM))),
    "ssa, own SGD, momentum": AttackedStream(lambda: _adapter(regtta.SSA(k=4, optimizer=_SGD))),
    "ssa, window, blended": AttackedStream(lambda: _adapter(regtta.SSA(k=4, window=60, batch_norm="blended"))),
    "prototype": AttackedStream(lambda: _adapter(regtta.Prototype())),
    "recentre": AttackedStream(lambda: _adapter(regtta.Recentre())),
    "recolour": AttackedStream(lambda: _adapter(regtta.Recolour())),
    "recalibrate_once": AttackedStream(lambda: _adapter(regtta.RecalibrateOnce())),
    "views": AttackedStream(lambda: _adapter(regtta.VarianceMinimization(views=2, augment=_noisy))),
    "sum": AttackedStream(lambda: _adapter(Sum(terms=(regtta.SSA(k=4, window=60), regtta.FeatureAlignment())))),
}

ABSENT = object()

Change = Callable[[Any], Any]
Path = tuple[object, ...]


def iterate_nodes(state: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield every value of a nested state, containers included, with its path of keys."""
    if path:
        yield path, state
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else ()
    for key, value in items:
        yield from iterate_nodes(value, (*path, key))


def replace_value(state: Any, path: Path, change: Change) -> Any:
    """Return a copy of ``state`` with one value changed; values off the path are shared."""
    if not path:
        return change(state)
    key, *rest = path
    if isinstance(state, dict):
        value = replace_value(state[key], tuple(rest), change)
        return {
            name: value if name == key else old for name, old in state.items() if name != key or value is not ABSENT
        }
    value = replace_value(state[key], tuple(rest), change)
    items = [
        value if number == key else old for number, old in enumerate(state) if number != key or value is not ABSENT
    ]
    return type(state)(items)


def _tensors_only(change: Callable[[torch.Tensor], object]) -> Change:
    return lambda value: change(value) if isinstance(value, torch.Tensor) else value


def _floats_only(change: Callable[[torch.Tensor], object]) -> Change:
    return _tensors_only(lambda value: change(value) if value.is_floating_point() else value)


def _cast_to(dtype: torch.dtype) -> Change:
    """Cast the real part: torch warns of a cast that drops an imaginary one, which an earlier change may have added."""
    return _tensors_only(lambda value: (value.real if value.is_complex() else value).to(dtype))


CHANGES: dict[str, Change] = {
    "left out": lambda _: ABSENT,
    "nothing": lambda _: None,
    "a text": lambda _: "x",
    "an empty list": lambda _: [],
    "an empty dict": lambda _: {},
    "one key more": lambda value: {**value, "more": 1} if isinstance(value, dict) else value,
    "one item more": lambda value: (
        type(value)([*value, value[0]]) if isinstance(value, list | tuple) and value else value
    ),
    "true": lambda _: True,
    "-1": lambda _: -1,
    "2^70": lambda _: 2**70,
    "10^400": lambda _: 10**400,
    "NaN": lambda _: float("nan"),
    "infinity": lambda _: float("inf"),
    "a tensor of one": lambda _: torch.ones(1),
    "a scalar": lambda _: torch.tensor(1.0),
    "a tensor of nothing": lambda _: torch.empty(0),
    "shape (1,)": _tensors_only(lambda value: torch.ones(1, dtype=value.dtype)),
    "one dimension more": _tensors_only(lambda value: value.unsqueeze(0)),
    "flat": _tensors_only(lambda value: value.reshape(-1)),
    "twice as long": _tensors_only(lambda value: torch.cat([value, value]) if value.ndim else value),
    "one row fewer": _tensors_only(lambda value: value[1:] if value.ndim else value),
    "in float64": _cast_to(torch.float64),
    "in float16": _cast_to(torch.float16),
    "in int64": _cast_to(torch.int64),
    "in bool": _cast_to(torch.bool),
    "in complex64": _cast_to(torch.complex64),
    "all NaN": _floats_only(lambda value: torch.full_like(value, torch.nan)),
    "all −infinity": _floats_only(lambda value: torch.full_like(value, -torch.inf)),
    "all −1": _tensors_only(lambda value: value if value.dtype == torch.bool else torch.zeros_like(value) - 1),
    "zeros": _tensors_only(torch.zeros_like),
}


# Stream, field of its state, and hostile value: each is refused by an error that names the field.
HOSTILE_FIELDS: list[tuple[str, str, object]] = [
    ("ssa", "learner/optimizer/state/1.weight/exp_avg", torch.ones(1)),
    ("ssa", "learner/optimizer/state/1.weight/exp_avg", torch.full((12,), torch.nan)),
    ("ssa", "learner/optimizer/state/1.weight/exp_avg_sq", -torch.ones(12)),
    ("ssa", "learner/optimizer/state/1.weight/step", torch.tensor(-1.0)),
    ("ssa", "learner/optimizer/state/4.bias/step", torch.tensor(7.0)),
    ("ssa", "learner/tensors/1.weight", torch.ones(1)),
    ("ssa", "learner/tensors/1.weight", torch.full((12,), torch.nan)),
    ("ssa", "learner/tensors/1.weight", torch.ones(12, dtype=torch.float64)),
    ("ssa", "learner/tensors/1.running_var", -torch.ones(12)),
    ("ssa", "learner/tensors/1.num_batches_tracked", torch.tensor(-3)),
    ("ssa", "learner/batch_norm/updates", -1),
    ("ssa", "learner/batch_norm/samples", "0"),
    ("ssa", "learner/rule", {"past": torch.ones(1)}),
    ("ssa", "learner/format", 0),
    ("ssa", "index", -1),
    ("ssa", "learned", 4),
    ("ssa", "begun", "yesterday"),
    ("ssa", "moved", 1),
    ("ssa", "frozen", None),
    ("ssa", "good", {"tensors": {}}),
    ("ssa, own Adam, fused", "learner/optimizer/state/1.weight/exp_avg", torch.ones(1)),
    ("ssa, own Adam, fused", "learner/optimizer/param_groups/0/amsgrad", True),
    ("ssa, own Adam, fused", "learner/optimizer/param_groups/0/betas", (0.9,)),
    ("ssa, own Adam, fused", "learner/optimizer/param_groups/0/lr", float("nan")),
    ("ssa, own SGD, momentum", "learner/optimizer/state/1.weight/momentum_buffer", torch.ones(12, 1)),
    ("ssa, window, blended", "learner/rule/past", torch.ones(61, 4)),
    ("ssa, window, blended", "learner/rule/past", torch.ones(60, 3)),
    ("prototype", "learner/rule/count", 0),
    ("prototype", "learner/rule/total", torch.ones(1)),
    ("recentre", "learner/rule/count", -1),
    ("recentre", "learner/rule/mean", torch.ones(1, dtype=torch.float64)),
    ("recolour", "learner/rule/scatter", torch.ones(12, dtype=torch.float64)),
    ("recolour", "learner/rule/mean", torch.full((12,), torch.nan, dtype=torch.float64)),
    ("recalibrate_once", "learner/rule/seen", 1.5),
    ("views", "learner/rule/generator", torch.zeros(5056, dtype=torch.uint8)),
    ("sum", "learner/rule/0/past", torch.full((60, 4), torch.inf)),
    ("ssa, safe", "good/tensors/1.weight", torch.ones(1)),
    ("ssa, safe", "good/optimizer/state/1.weight/exp_avg", torch.ones(1)),
    ("ssa, safe", "watches/4/source/sums", torch.ones(2, 2, dtype=torch.float64)),
    ("ssa, safe", "watches/4/source/weight", 0.0),
    ("ssa, safe", "watches/7/seen", torch.ones(64, 1)),
    ("ssa, safe", "watches/7/steady_for", -5),
    ("ssa, safe", "watches/9/losses", [1.0] * 33),
    ("ssa, safe", "watches/9/losses", [float("nan")]),
    ("ssa, safe", "watches/11/began", torch.ones(1, dtype=torch.float64)),
    ("ssa, safe", "watches/12/steps", 5),
    ("ssa, safe", "watches/13/failures", 0.5),
]


def make_state(stream: AttackedStream) -> dict[str, Any]:
    """Return the state of the stream after its batches."""
    adapter = stream.make()
    for x in STREAM[: stream.batches]:
        adapter.adapt(x)
    return copy.deepcopy(adapter.state_dict())


@functools.cache
def make_checkpoint_file() -> bytes:
    """Return the content of a checkpoint file of the stream ``"ssa"``."""
    with tempfile.TemporaryDirectory() as folder:
        path = FilePath(folder) / "stream.safetensors"
        write_state(path, {"batches": 3, "adapter": make_state(STREAMS["ssa"])})
        return path.read_bytes()


def resume_and_step(path: FilePath) -> torch.Tensor:
    """Read a checkpoint, resume from it and take a step."""
    checkpoint = attach(regtta.Checkpoint(path), STREAMS["ssa"].make())
    checkpoint.resume()
    predictions = checkpoint.adapter.adapt(STREAM[-1]).predictions
    if not bool(predictions.isfinite().all()):
        raise AssertionError("a step from the state gave predictions that are not finite")
    return predictions
