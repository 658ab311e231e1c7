"""Conversion of the state of a user-supplied optimizer to and from a state per named parameter."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regtta.engine.flat_optimizer_state import (
    ADDED_BY_TORCH,
    copy_for,
    require_options,
    require_value,
    state_of_zeros,
    torch_class,
)
from regtta.persistence import require_mapping, require_sequence, same_description, state_error


class CustomOptimizerState:
    """Reader, writer and validator of the state of a user-supplied optimizer.

    States of torch's optimizers are validated against the schema of a state after one step. For a subclass of one, only
    the fields that both have in common are validated; for any other optimizer, only the parameters of its groups.

    Args:
        optimizer: the optimizer.
        trainable: the parameters that it updates, by name.
    """

    def __init__(self, optimizer: Optimizer, trainable: Mapping[str, nn.Parameter]) -> None:
        self.optimizer = optimizer
        self.trainable = trainable
        # An optimizer may change its options over time; states are compared with the initial ones.
        self._options = [{**group, "params": []} for group in optimizer.param_groups]

    def read(self) -> dict[str, Any]:
        """Return ``optimizer.state_dict()`` with parameter names in place of indices and contiguous tensors."""
        state = self.optimizer.state_dict()
        names = dict(enumerate(self._names))
        copied: dict[str, Any] = _copied(_renamed(state, names) if _has_torch_format(state) else state)
        return copied

    def write(self, state: Mapping[str, Any]) -> None:
        """Load a validated state, each tensor with the memory format of its parameter."""
        if not _has_torch_format(state):
            self.optimizer.load_state_dict(copy.deepcopy(dict(state)))
            return
        numbers = {name: number for number, name in enumerate(self._names)}
        packed: dict[str, Any] = _copied(_renamed(state, numbers))
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        for number, entry in packed["state"].items():
            if isinstance(number, int) and 0 <= number < len(parameters) and isinstance(entry, dict):
                entry.update({key: _laid_out_as(parameters[number], value) for key, value in entry.items()})
        for group, own in zip(packed["param_groups"], self.optimizer.param_groups, strict=True):
            missing = {key: own[key] for key in ADDED_BY_TORCH if key in own and key not in group}
            group.update(missing | ({"capturable": own["capturable"]} if "capturable" in own else {}))
        self.optimizer.load_state_dict(packed)

    def validate(self, state: object, path: str) -> None:
        """Raise a StateError if ``state`` does not match the running optimizer, as far as its schema is known."""
        if not _has_torch_format(self.optimizer.state_dict()):
            return
        found = require_mapping(path, state, ("state", "param_groups"), others=True)
        groups, own = require_sequence(f"{path}/param_groups", found["param_groups"]), self._initial_groups()
        if len(groups) != len(own):
            raise state_error(f"{path}/param_groups", f"{len(own)} group(s)", f"{len(groups)}")
        known = torch_class(self.optimizer)
        exact = known is type(self.optimizer)
        for number, (group, running) in enumerate(zip(groups, own, strict=True)):
            at = f"{path}/param_groups/{number}"
            params = require_mapping(at, group).get("params")
            if not same_description(params, running["params"]):
                raise state_error(f"{at}/params", f"{running['params']}", f"{params}")
            if exact:
                require_options(at, group, running)
        entries = require_mapping(f"{path}/state", found["state"])
        if known is None:
            return
        checked = {
            name: require_mapping(f"{path}/state/{name}", entry)
            for name, entry in entries.items()
            if exact or name in self.trainable
        }
        stepped = exact and any(checked.values())
        if stepped:  # every step updates all parameters
            require_mapping(f"{path}/state", checked, [name for group in own for name in group["params"]])
        for name, entry in checked.items():
            if name not in self.trainable:
                raise state_error(f"{path}/state/{name}", "the state of a trainable parameter", name)
            self._validate_entry(f"{path}/state/{name}", entry, known, name, stepped=stepped)

    def upgraded(self, state: object, path: str) -> dict[str, Any]:
        """Convert a state of version 0.1.0, replacing parameter indices by names."""
        found = require_mapping(path, state)
        if not _has_torch_format(self.optimizer.state_dict()):
            return dict(found)
        if not _has_torch_format(found):
            raise state_error(path, "the state of an optimizer", found)
        return _renamed(found, dict(enumerate(self._names)))

    @property
    def _names(self) -> list[str | int]:
        """Name of every parameter of the optimizer; its index if it does not belong to the model."""
        names = {id(parameter): name for name, parameter in self.trainable.items()}
        stepped = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return [names.get(id(parameter), number) for number, parameter in enumerate(stepped)]

    def _initial_groups(self) -> list[dict[str, Any]]:
        names = iter(self._names)
        sizes = [len(group["params"]) for group in self.optimizer.param_groups]
        return [
            {**options, "params": list(itertools.islice(names, size))}
            for options, size in zip(self._options, sizes, strict=True)
        ]

    def _validate_entry(
        self, path: str, found: Mapping[str, Any], known: type[Optimizer], name: str, *, stepped: bool
    ) -> None:
        schema = self._schema(known, self.trainable[name])
        if schema is None:
            return
        if stepped:
            require_mapping(path, found, schema.keys())
        for key in schema.keys() & found.keys():
            example = schema[key]
            shape = example.shape if isinstance(example, Tensor) else None
            require_value(f"{path}/{key}", key, found[key], example, shape)

    def _schema(self, known: type[Optimizer], parameter: nn.Parameter) -> dict[str, Any] | None:
        """Return the state after one step on zeros; ``None`` if the optimizer's step needs further arguments."""
        holds = [any(p is parameter for p in group["params"]) for group in self.optimizer.param_groups]
        options = {key: value for key, value in self._options[holds.index(True)].items() if key != "params"}
        try:
            return state_of_zeros(copy_for(known, options, self.optimizer.defaults), torch.zeros_like(parameter))
        except Exception:  # some of torch's optimizers require a closure or sparse gradients
            return None


def _has_torch_format(state: object) -> bool:
    """Return True if ``state`` has the format of ``Optimizer.state_dict``, which subclasses may override."""
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
        return False
    groups = state.get("param_groups")
    if not isinstance(groups, list | tuple):
        return False
    return all(isinstance(group, Mapping) and isinstance(group.get("params"), list | tuple) for group in groups)


def _renamed(state: Mapping[str, Any], names: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a state in torch's format with the parameter keys replaced by ``names``; values are not copied."""
    groups = [{**group, "params": [_new_key(key, names) for key in group["params"]]} for group in state["param_groups"]]
    return {
        **state,
        "state": {_new_key(key, names): value for key, value in state["state"].items()},
        "param_groups": groups,
    }


def _new_key(key: Any, names: Mapping[Any, Any]) -> Any:
    return names.get(key, key) if isinstance(key, str | int) and not isinstance(key, bool) else key


def _copied(value: Any) -> Any:
    """Return a deep copy with contiguous tensors."""
    if isinstance(value, Tensor) and value.layout is torch.strided:
        return value.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return copy.deepcopy(value)


def _laid_out_as(parameter: Tensor, value: Any) -> Any:
    """Return ``value`` with the strides of its parameter if the shapes are equal, as fused kernels require."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape or value.ndim == 0:
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device, requires_grad=False).copy_(value)
