"""Steps of torch's built-in optimizers without the per-step overhead of ``Optimizer.step``.

At every step, torch groups parameters, checks for a GPU and looks for hooks. For a small model this takes longer than
the update itself. Here each parameter is a flat tensor that always has a gradient, and there are no hooks.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

_KERNELS: Mapping[type[torch.optim.Optimizer], Callable[..., None]] = MappingProxyType(
    {torch.optim.Adam: torch._fused_adam_, torch.optim.AdamW: torch._fused_adamw_}
)


def bare_step(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """Return a function equivalent to ``optimizer.step()``, provided that every parameter has a gradient.

    The state remains in ``optimizer.state``. Adam and AdamW with ``fused=True`` call torch's fused kernel directly from
    the second step on; the first step is torch's own and initializes the state.

    Example:
        >>> x = torch.nn.Parameter(torch.zeros(1))
        >>> x.grad = torch.ones(1)
        >>> step = bare_step(torch.optim.Adam([x], lr=0.5, fused=True))
        >>> step(), step(), round(x.item(), 4)
        (None, None, -1.0)
    """
    full_step = partial(torch.no_grad()(inspect.unwrap(type(optimizer).step)), optimizer)
    kernel = _KERNELS.get(type(optimizer))
    if kernel is None or not all(group["fused"] and not group["amsgrad"] for group in optimizer.param_groups):
        return full_step

    @torch.no_grad()
    def step() -> None:
        if not optimizer.state:
            full_step()
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                _step_one(kernel, parameter, optimizer.state[parameter], group)

    return step


def _step_one(
    kernel: Callable[..., None], parameter: torch.nn.Parameter, state: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    state["step"].add_(1)
    kernel(
        [parameter],
        [parameter.grad],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [state["step"]],
        lr=options["lr"],
        beta1=options["betas"][0],
        beta2=options["betas"][1],
        weight_decay=options["weight_decay"],
        eps=options["eps"],
        amsgrad=False,
        maximize=options["maximize"],
    )
