"""State of optimizers over flat tensors, saved and restored by parameter, and the schema it is validated against."""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regtta.errors import StateError
from regtta.execution import Flat
from regtta.persistence import (
    require_bool,
    require_mapping,
    require_number,
    require_sequence,
    require_tensor,
    state_error,
)

# Options that torch has added over time, so that files written with older versions may lack them.
ADDED_BY_TORCH = ("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay")
_SCHEDULED = ("lr", "betas", "momentum")  # options that torch's schedulers change
# Counts, and sums or means of squares, whose square roots are taken.
_NEVER_NEGATIVE = ("step", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "exp_inf")


def state_of_zeros(make: Callable[[Iterable[nn.Parameter]], Optimizer], zeros: Tensor) -> dict[str, Any]:
    """Return the state that an optimizer keeps for one parameter after one step with a zero gradient.

    Args:
        make: creates the optimizer for the given parameters.
        zeros: the initial parameter, which determines shape, dtype and device of the state.

    Example:
        >>> state = state_of_zeros(lambda p: torch.optim.Adam(p, lr=0.1), torch.zeros(3))
        >>> sorted(state), state["exp_avg"].shape
        (['exp_avg', 'exp_avg_sq', 'step'], torch.Size([3]))
    """
    twin = nn.Parameter(zeros)
    twin.grad = torch.zeros_like(twin)
    optimizer = make([twin])
    optimizer.step()
    return dict(optimizer.state[twin])


def copy_for(
    cls: type[Optimizer], options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    """Return a factory of optimizers of the torch class ``cls`` with the options of an existing parameter group."""

    def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
        # Bypass the constructor: groups hold options that some constructors do not accept.
        optimizer = cls.__new__(cls)
        groups = [{**options, "params": list(parameters)}]
        optimizer.__setstate__({"defaults": dict(defaults), "state": defaultdict(dict), "param_groups": groups})
        return optimizer

    return make


def torch_class(optimizer: Optimizer) -> type[Optimizer] | None:
    """Return the ``torch.optim`` class of the optimizer or of its nearest such base class, or ``None``."""
    for cls in type(optimizer).__mro__:
        if cls.__module__.startswith("torch.optim") and issubclass(cls, Optimizer) and cls is not Optimizer:
            return cls
    return None


def require_value(path: str, key: str, value: object, example: object, shape: Sequence[int] | None) -> None:
    """Raise a StateError unless ``value`` has the type and dtype of ``example``.

    Args:
        path: path of the field in the state, for error messages.
        key: name of the field in the optimizer's state.
        value: the value to validate.
        example: the value of a valid state.
        shape: expected shape of a tensor; the shape of ``example`` if None.
    """
    if isinstance(example, Tensor):
        # Torch counts steps in the default dtype, which programs may change.
        doubled = key == "step" and isinstance(value, Tensor) and value.dtype == torch.float64
        dtype = torch.float64 if doubled else example.dtype
        least = 0.0 if key in _NEVER_NEGATIVE else None
        require_tensor(path, value, example.shape if shape is None else shape, dtype, minimum=least)
    elif isinstance(example, bool):
        require_bool(path, value)
    elif isinstance(example, int | float):
        require_number(path, value)


def require_options(path: str, group: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise a StateError unless the options of ``group`` equal ``own``, except those that torch's schedulers change."""
    for name, value in own.items():
        if name == "params" or (name in ADDED_BY_TORCH and name not in group):
            continue
        at = f"{path}/{name}"
        if name not in group:
            raise state_error(at, "present", None)
        if name == "capturable":  # determined by the execution
            require_bool(at, group[name])
        elif name in _SCHEDULED and not isinstance(value, bool):
            _require_scheduled(at, group[name], value)
        elif not _same_option(group[name], value):
            raise state_error(at, f"{value}", group[name])


def _require_scheduled(path: str, value: object, own: object) -> None:
    if isinstance(own, Tensor):
        require_tensor(path, value, own.shape, own.dtype, minimum=0.0)
    elif isinstance(own, list | tuple):
        items = require_sequence(path, value)
        if len(items) != len(own):
            raise state_error(path, f"{len(own)} items", f"{len(items)}")
        for number, (item, mine) in enumerate(zip(items, own, strict=True)):
            _require_scheduled(f"{path}/{number}", item, mine)
    else:
        require_number(path, value, minimum=0.0)
        if isinstance(own, float) and not isinstance(value, float):
            raise state_error(path, "a float", value)


def _same_option(value: object, own: object) -> bool:
    if isinstance(own, Tensor):
        return isinstance(value, Tensor) and torch.equal(value.cpu(), own.cpu())
    if isinstance(own, list | tuple):
        alike = isinstance(value, list | tuple) and len(value) == len(own)
        return alike and all(map(_same_option, value, own))  # type: ignore[call-overload]
    return type(value) is type(own) and value == own


_PROBE_SIZE = 7


class FlatOptimizerState:
    """Reader, writer and validator of the state of an elementwise optimizer over flat tensors.

    The optimizer's options are determined by the method and are therefore not part of the state.

    Args:
        optimizer: the optimizer.
        trainable: the parameters, by name.
        flats: the flat tensors that the optimizer updates, in its order.
        make: creates such an optimizer for the given parameters, to determine the schema of its state.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        trainable: Mapping[str, nn.Parameter],
        flats: Sequence[Flat],
        make: Callable[[Iterable[nn.Parameter]], Optimizer],
    ) -> None:
        self.optimizer = optimizer
        self.trainable = trainable
        self._flats = flats
        self._make = make
        names = {id(parameter): name for name, parameter in trainable.items()}
        self._names = [[names[id(part)] for part in flat.parts] for flat in flats]

    def read(self) -> dict[str, Any]:
        """Return ``{"state": {name: {key: tensor of the parameter's shape, or a scalar}}}``."""
        found: dict[str, dict[str, Any]] = {}
        for number, stepped in enumerate(self._stepped):
            found |= self._split(number, self.optimizer.state.get(stepped, {}))
        return {"state": {name: found[name] for name in self.trainable if found.get(name)}}

    def write(self, state: Mapping[str, Any]) -> None:
        """Load a validated state into the layout of the flat tensors; the tensors of ``state`` are copied."""
        entries = state["state"]
        packed = {} if not entries else {number: self._joined(number, entries) for number in range(len(self._flats))}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": packed, "param_groups": groups})

    def validate(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` matches the schema of the optimizer's state after one step."""
        entries = require_mapping(f"{path}/state", require_mapping(path, state, ("state",))["state"])
        if not entries:
            return
        require_mapping(f"{path}/state", entries, self.trainable.keys())
        for flat, names in zip(self._flats, self._names, strict=True):
            schema = self._schema(flat)
            for name, part in zip(names, flat.parts, strict=True):
                entry = require_mapping(f"{path}/state/{name}", entries[name], schema.keys())
                for key, example in schema.items():
                    shape = part.shape if _elementwise(example) else None
                    require_value(f"{path}/state/{name}/{key}", key, entry[key], example, shape)
            self._require_same_scalars(f"{path}/state", names, schema, entries)

    def upgraded(self, state: object, path: str) -> dict[str, Any]:
        """Convert a state of version 0.1.0, which stored flat tensors; raise if the order of values is ambiguous."""
        old = require_mapping(path, state, ("state", "param_groups"))
        entries = require_mapping(f"{path}/state", old["state"])
        for key in entries:
            if key not in range(len(self._flats)):
                raise state_error(f"{path}/state/{key}", f"one of {len(self._flats)} stepped tensors", key)
        self._require_same_options(f"{path}/param_groups", old["param_groups"])
        found: dict[str, dict[str, Any]] = {}
        for number, flat in enumerate(self._flats):
            entry = require_mapping(f"{path}/state/{number}", entries.get(number, {}))
            if any(_whole(value, flat) for value in entry.values()):
                self._require_unambiguous(number)
            found |= self._split(number, entry)
        return {"state": {name: found[name] for name in self.trainable if found.get(name)}}

    @property
    def _stepped(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _split(self, number: int, entry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Split the state of one flat tensor into the states of its parameters, by name."""
        flat, names = self._flats[number], self._names[number]
        found: dict[str, dict[str, Any]] = {name: {} for name in names}
        for key, value in entry.items():
            # Copy once and take views: parameters are many and mostly small.
            views = _views(flat, value.detach().clone()) if _whole(value, flat) else None
            for place, name in enumerate(names):
                found[name][key] = copy.deepcopy(value) if views is None else views[place].contiguous()
        return found

    def _joined(self, number: int, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        flat, names = self._flats[number], self._names[number]
        joined: dict[str, Any] = {}
        for key, example in self._schema(flat).items():
            values = [entries[name][key] for name in names]
            if not _elementwise(example):
                joined[key] = copy.deepcopy(values[0])
                continue
            joined[key] = torch.zeros_like(flat.whole, dtype=values[0].dtype)
            for view, value in zip(_views(flat, joined[key]), values, strict=True):
                view.copy_(value)
        return joined

    def _schema(self, flat: Flat) -> dict[str, Any]:
        """Return the optimizer's state for a vector of :data:`_PROBE_SIZE` elements after one step."""
        return state_of_zeros(self._make, flat.whole.new_zeros(_PROBE_SIZE))

    def _require_same_scalars(
        self, path: str, names: Sequence[str], schema: Mapping[str, Any], entries: Mapping[str, Any]
    ) -> None:
        """Raise a StateError unless the parameters of one flat tensor share their scalars, such as the step count."""
        for key in (key for key, example in schema.items() if not _elementwise(example)):
            first = entries[names[0]][key]
            for name in names[1:]:
                value = entries[name][key]
                if not (torch.equal(value, first) if isinstance(value, Tensor) else value == first):
                    raise state_error(f"{path}/{name}/{key}", f"equal to that of {names[0]}", "a different value")

    def _require_same_options(self, path: str, found: object) -> None:
        """Raise a StateError unless a state of version 0.1.0 has the options of the current optimizer."""
        groups, own = require_sequence(path, found), self.optimizer.param_groups
        if len(groups) != len(own):
            raise state_error(path, f"{len(own)} group(s)", f"{len(groups)}")
        for number, (group, options) in enumerate(zip(groups, own, strict=True)):
            require_mapping(f"{path}/{number}", group)
            for name, value in options.items():
                if name == "params" or name in ADDED_BY_TORCH:
                    continue
                if name not in group or type(group[name]) is not type(value) or group[name] != value:
                    raise state_error(f"{path}/{number}/{name}", f"{value}", group.get(name))

    def _require_unambiguous(self, number: int) -> None:
        for name, part in zip(self._names[number], self._flats[number].parts, strict=True):
            if _has_two_layouts(part):
                raise StateError(
                    f"The state was written by regtta 0.1.0, which stored the optimizer's moments in memory order "
                    f"without recording the memory format of {name} of shape {tuple(part.shape)} (channels first or "
                    "last). Restart the stream, or finish it with regtta 0.1.0."
                )


def _views(flat: Flat, whole: Tensor) -> list[Tensor]:
    """Return views of ``whole``, which has the layout of ``flat``, one per part."""
    alone = len(flat.parts) == 1 and flat.parts[0].shape == flat.whole.shape
    return [whole] if alone else flat.like(whole)


def _whole(value: object, flat: Flat) -> bool:
    """Return True if a value of the state has one element per element of the flat tensor."""
    return isinstance(value, Tensor) and value.shape == flat.whole.shape


def _elementwise(example: object) -> bool:
    return isinstance(example, Tensor) and example.shape == (_PROBE_SIZE,)


def _has_two_layouts(part: Tensor) -> bool:
    """Return True if channels-first and channels-last formats store the values in different orders."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if part.ndim not in formats:
        return False
    return not (part.is_contiguous() and part.is_contiguous(memory_format=formats[part.ndim]))
