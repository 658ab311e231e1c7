"""Conversion of the state of an optimizer over flat tensors to and from a state per named parameter.

The optimizer updates flat tensors whose layout depends on the execution (memory format, grouping). A saved state is
independent of that layout, so that a checkpoint can be resumed under any execution.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regtta.errors import StateError
from regtta.flattening import Flat
from regtta.optimizer_schema import ADDED_BY_TORCH, require_value, state_of_zeros
from regtta.state_validation import invalid, require_mapping, require_sequence

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
                raise invalid(f"{path}/state/{key}", f"one of {len(self._flats)} stepped tensors", key)
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
                    raise invalid(f"{path}/{name}/{key}", f"equal to that of {names[0]}", "a different value")

    def _require_same_options(self, path: str, found: object) -> None:
        """Raise a StateError unless a state of version 0.1.0 has the options of the current optimizer."""
        groups, own = require_sequence(path, found), self.optimizer.param_groups
        if len(groups) != len(own):
            raise invalid(path, f"{len(own)} group(s)", f"{len(groups)}")
        for number, (group, options) in enumerate(zip(groups, own, strict=True)):
            require_mapping(f"{path}/{number}", group)
            for name, value in options.items():
                if name == "params" or name in ADDED_BY_TORCH:
                    continue
                if name not in group or type(group[name]) is not type(value) or group[name] != value:
                    raise invalid(f"{path}/{number}/{name}", f"{value}", group.get(name))

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
