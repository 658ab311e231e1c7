"""The state of an optimizer of the user's own, which takes the parameters one by one, by the names of these."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regtta.identities import same_description
from regtta.optimizer_schema import (
    ADDED_BY_TORCH,
    copy_for,
    require_options,
    require_value,
    state_of_zeros,
    torch_class,
)
from regtta.state_validation import invalid, require_mapping, require_sequence


class CustomOptimizerState:
    """The state of an optimizer of the user's own.

    Optimizers of torch are checked against what one step of them makes. Of a subclass of one, what both have in common
    is checked; of any other optimizer, that its groups hold the same parameters.

    Args:
        optimizer: whose state it is.
        trainable: the parameters that it steps, by name.
    """

    def __init__(self, optimizer: Optimizer, trainable: Mapping[str, nn.Parameter]) -> None:
        self.optimizer = optimizer
        self.trainable = trainable
        # Such an optimizer may change its options as it goes; states are compared with those it was made with.
        self._options = [{**group, "params": []} for group in optimizer.param_groups]

    def read(self) -> dict[str, Any]:
        """Return what ``optimizer.state_dict()`` gives, with names in place of numbers and contiguous tensors."""
        state = self.optimizer.state_dict()
        names = dict(enumerate(self._names))
        copied: dict[str, Any] = _copied(_renamed(state, names) if _as_torch_writes(state) else state)
        return copied

    def write(self, state: Mapping[str, Any]) -> None:
        """Load a state that :meth:`validate` has accepted, each tensor laid out as its parameter."""
        if not _as_torch_writes(state):
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
        """Raise a StateError where ``state`` is not what the running optimizer would write, as far as that is known."""
        if not _as_torch_writes(self.optimizer.state_dict()):
            return
        found = require_mapping(path, state, ("state", "param_groups"), others=True)
        groups, own = require_sequence(f"{path}/param_groups", found["param_groups"]), self._groups_at_first()
        if len(groups) != len(own):
            raise invalid(f"{path}/param_groups", f"{len(own)} group(s)", f"{len(groups)}")
        known = torch_class(self.optimizer)
        exact = known is type(self.optimizer)
        for number, (group, running) in enumerate(zip(groups, own, strict=True)):
            at = f"{path}/param_groups/{number}"
            params = require_mapping(at, group).get("params")
            if not same_description(params, running["params"]):
                raise invalid(f"{at}/params", f"{running['params']}", f"{params}")
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
        if stepped:  # every step is of all parameters
            require_mapping(f"{path}/state", checked, [name for group in own for name in group["params"]])
        for name, entry in checked.items():
            if name not in self.trainable:
                raise invalid(f"{path}/state/{name}", "of a trainable parameter", name)
            self._validate_entry(f"{path}/state/{name}", entry, known, name, stepped=stepped)

    def upgraded(self, state: object, path: str) -> dict[str, Any]:
        """Return a state of version 0.1.0, with names in place of its numbers."""
        found = require_mapping(path, state)
        if not _as_torch_writes(self.optimizer.state_dict()):
            return dict(found)
        if not _as_torch_writes(found):
            raise invalid(path, "the state of an optimizer", found)
        return _renamed(found, dict(enumerate(self._names)))

    @property
    def _names(self) -> list[str | int]:
        """The name of every stepped parameter; the number of one that is not the model's."""
        names = {id(parameter): name for name, parameter in self.trainable.items()}
        stepped = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return [names.get(id(parameter), number) for number, parameter in enumerate(stepped)]

    def _groups_at_first(self) -> list[dict[str, Any]]:
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
        """Return the state after one step of a parameter's twin; ``None`` for optimizers that need more to step."""
        holds = [any(p is parameter for p in group["params"]) for group in self.optimizer.param_groups]
        options = {key: value for key, value in self._options[holds.index(True)].items() if key != "params"}
        try:
            return state_of_zeros(copy_for(known, options, self.optimizer.defaults), torch.zeros_like(parameter))
        except Exception:  # torch's own that want a closure, or sparse gradients
            return None


def _as_torch_writes(state: object) -> bool:
    """Whether ``state`` is of the form of ``Optimizer.state_dict``, which an optimizer of the user's own may change."""
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
        return False
    groups = state.get("param_groups")
    if not isinstance(groups, list | tuple):
        return False
    return all(isinstance(group, Mapping) and isinstance(group.get("params"), list | tuple) for group in groups)


def _renamed(state: Mapping[str, Any], names: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a state of torch's form with other keys for its parameters; nothing is copied."""
    groups = [{**group, "params": [_other(key, names) for key in group["params"]]} for group in state["param_groups"]]
    return {
        **state,
        "state": {_other(key, names): value for key, value in state["state"].items()},
        "param_groups": groups,
    }


def _other(key: Any, names: Mapping[Any, Any]) -> Any:
    return names.get(key, key) if isinstance(key, str | int) and not isinstance(key, bool) else key


def _copied(value: Any) -> Any:
    """Return a copy whose tensors are contiguous, in their logical order."""
    if isinstance(value, Tensor) and value.layout is torch.strided:
        return value.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return copy.deepcopy(value)


def _laid_out_as(parameter: Tensor, value: Any) -> Any:
    """Return ``value``, where it is of its parameter's shape, with its strides: fused kernels read memory in order."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape or value.ndim == 0:
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device, requires_grad=False).copy_(value)
