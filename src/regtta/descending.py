"""One step of an optimizer of torch's own, without what torch does around it.

At every step torch groups parameters, asks whether there is a GPU and looks for hooks. For a small model that takes
longer than the step. Here each parameter is a flat tensor that holds many and has its gradient, and nobody hooks in.
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
    """What does the same as ``optimizer.step()`` where every parameter has a gradient.

    The optimizer's state is where it always is. Adam and AdamW, made with ``fused=True``, go straight to torch's kernel
    from their second step on; the first is torch's own and makes the state.

    Example:
        >>> x = torch.nn.Parameter(torch.zeros(1))
        >>> x.grad = torch.ones(1)
        >>> step = bare_step(torch.optim.Adam([x], lr=0.5, fused=True))
        >>> step(), step(), round(x.item(), 4)
        (None, None, -1.0)
    """
    whole = partial(torch.no_grad()(inspect.unwrap(type(optimizer).step)), optimizer)
    kernel = _KERNELS.get(type(optimizer))
    if kernel is None or not all(group["fused"] and not group["amsgrad"] for group in optimizer.param_groups):
        return whole

    @torch.no_grad()
    def step() -> None:
        if not optimizer.state:
            whole()
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
