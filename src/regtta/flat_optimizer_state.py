"""The state of an optimizer that steps flat tensors, by parameter and in logical order.

An optimizer steps what the running execution lays out: flat tensors that hold many parameters in the order of memory. A
saved state must not depend on that, so that any execution can resume any other.
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
    """The state of an optimizer that treats every number alike and steps flat tensors.

    Its options are the method's, and so no part of the state.

    Args:
        optimizer: whose state it is.
        trainable: the parameters, by name.
        flats: what the optimizer steps, in its order.
        make: makes such an optimizer of some parameters, to learn what its state is made of.
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
        """Load a state that :meth:`validate` has accepted, laid out as the flat tensors are; nothing is shared."""
        entries = state["state"]
        packed = {} if not entries else {number: self._joined(number, entries) for number in range(len(self._flats))}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": packed, "param_groups": groups})

    def validate(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` is like that of a fresh optimizer of the same kind after one step."""
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
        """Return a state of version 0.1.0, which kept flat tensors, where the order of their values is known."""
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
                self._refuse_ambiguous(number)
            found |= self._split(number, entry)
        return {"state": {name: found[name] for name in self.trainable if found.get(name)}}

    @property
    def _stepped(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _split(self, number: int, entry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return what the parameters of one flat tensor have of its state."""
        flat, names = self._flats[number], self._names[number]
        found: dict[str, dict[str, Any]] = {name: {} for name in names}
        for key, value in entry.items():
            # One copy of all, of which each parameter gets its view: parameters are many and mostly small.
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
        """Return the state that such an optimizer has of a vector of :data:`_PROBE_SIZE` numbers after one step."""
        return state_of_zeros(self._make, flat.whole.new_zeros(_PROBE_SIZE))

    def _require_same_scalars(
        self, path: str, names: Sequence[str], schema: Mapping[str, Any], entries: Mapping[str, Any]
    ) -> None:
        """Raise where parameters that are stepped as one were not stepped equally often."""
        for key in (key for key, example in schema.items() if not _elementwise(example)):
            first = entries[names[0]][key]
            for name in names[1:]:
                value = entries[name][key]
                if not (torch.equal(value, first) if isinstance(value, Tensor) else value == first):
                    raise invalid(f"{path}/{name}/{key}", f"that of {names[0]}", "another")

    def _require_same_options(self, path: str, found: object) -> None:
        """Raise where version 0.1.0 stepped by other options, which came from the method, as they do now."""
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

    def _refuse_ambiguous(self, number: int) -> None:
        for name, part in zip(self._names[number], self._flats[number].parts, strict=True):
            if _has_two_layouts(part):
                raise StateError(
                    f"The state is of regtta 0.1.0, which kept the optimizer's moments in the order of memory, and "
                    f"does not say which of two orders {name} of shape {tuple(part.shape)} had (channels first or "
                    "last). Begin the stream anew, or finish it with regtta 0.1.0."
                )


def _views(flat: Flat, whole: Tensor) -> list[Tensor]:
    """Return the parts of ``whole``, which is laid out as ``flat`` is."""
    alone = len(flat.parts) == 1 and flat.parts[0].shape == flat.whole.shape
    return [whole] if alone else flat.like(whole)


def _whole(value: object, flat: Flat) -> bool:
    """Whether a value of the state has one number for each of the flat tensor's."""
    return isinstance(value, Tensor) and value.shape == flat.whole.shape


def _elementwise(example: object) -> bool:
    return isinstance(example, Tensor) and example.shape == (_PROBE_SIZE,)


def _has_two_layouts(part: Tensor) -> bool:
    """Whether channels first and channels last put its values in two orders."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if part.ndim not in formats:
        return False
    return not (part.is_contiguous() and part.is_contiguous(memory_format=formats[part.ndim]))
