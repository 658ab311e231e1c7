"""Checks that a model can be adapted at all, with errors that name the cause."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from regtta.errors import ModelError


def check_model(model: object) -> None:
    """Raise a ModelError unless ``model`` is a module whose layers can be found, copied and trained.

    Example:
        >>> check_model(nn.Linear(2, 1))
        >>> try:
        ...     check_model(nn.Linear)
        ... except ModelError as error:
        ...     print(str(error)[:50])
        Expected a torch.nn.Module, found the class Linear
    """
    if not isinstance(model, nn.Module):
        raise ModelError(_not_a_module(model))
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError(
            "Expected a torch.nn.Module in Python, found a TorchScript module: its compiled forward cannot be "
            "observed, and its layers cannot be told apart. Pass the module it was compiled from, with the same "
            "weights: model.load_state_dict(scripted.state_dict())."
        )
    if _is_exported(model):
        raise ModelError(
            "Expected a torch.nn.Module in Python, found a torch.export program: BatchNorm and linear layers have been "
            "replaced by operations, so that there is nothing to adapt. Pass the module it was exported from, with the "
            "same weights: model.load_state_dict(program.state_dict)."
        )
    quantized = _quantized_layers(model)
    if quantized:
        raise ModelError(
            f"The model is quantised ({quantized[0]} and {len(quantized) - 1} other layers): integer weights have no "
            "gradient, and quantised layers no features to align. Adapt the floating-point model, and quantise the "
            "result of adapter.export()."
        )
    lazy = [name for name, tensor in [*model.named_parameters(), *model.named_buffers()] if is_lazy(tensor)]
    if lazy:
        raise ModelError(
            f"The model has lazy layers without weights yet ({lazy[0]}). Run it on one batch first, model(x), and load "
            "its trained weights."
        )


def _not_a_module(model: object) -> str:
    if _defined_in(model, "torch.export."):
        return (
            "Expected a torch.nn.Module, found a torch.export program: BatchNorm and linear layers have been replaced "
            "by operations, so that there is nothing to adapt. Pass the module it was exported from, with the same "
            "weights: model.load_state_dict(program.state_dict)."
        )
    kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    return (
        f"Expected a torch.nn.Module, found {kind}. Pass the trained module itself: an instance, with its weights "
        "loaded by load_state_dict."
    )


def _is_exported(model: nn.Module) -> bool:
    if _defined_in(model, "torch.export."):
        return True
    # ExportedProgram.module() is a GraphModule whose graph calls operations only.
    graph: Any = getattr(model, "graph", None) if _defined_in(model, "torch.fx.") else None
    return graph is not None and not any(node.op == "call_module" for node in graph.nodes)


def _defined_in(value: object, package: str) -> bool:
    """Return True if the class of ``value`` or one of its bases is defined in ``package``, which is not imported."""
    return any(cls.__module__.startswith(package) for cls in type(value).__mro__)


def _quantized_layers(model: nn.Module) -> list[str]:
    """Return the names of all quantised layers, without the parts that they consist of."""
    found = {name: type(module).__name__ for name, module in model.named_modules() if _is_quantized(module)}
    return [name or kind for name, kind in found.items() if name.rpartition(".")[0] not in found or not name]


def _is_quantized(module: nn.Module) -> bool:
    if ".quantized" in type(module).__module__:
        return True
    own: list[Tensor] = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return any(tensor.is_quantized for tensor in own if not is_lazy(tensor))
