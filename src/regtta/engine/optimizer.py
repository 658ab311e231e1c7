"""One optimizer step on flat tensors: gradients, update and norms.

Torch's ``Optimizer.step`` groups parameters, looks for hooks and checks devices on every call, which takes longer than
the update of a small model. Here each parameter of the optimizer is one flat tensor that holds many parameters of the
model and has its gradient, so that the fused kernel can be called directly.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from regtta.errors import ModelError
from regtta.execution import Communicator, Flat
from regtta.methods import Schedule

_KERNELS: Mapping[type[torch.optim.Optimizer], Callable[..., None]] = MappingProxyType(
    {torch.optim.Adam: torch._fused_adam_, torch.optim.AdamW: torch._fused_adamw_}
)


class FlatGradients:
    """Gradients of the trainable parameters in flat tensors.

    Args:
        flats: flat tensors that hold the parameters.

    Attributes:
        flats: the flat tensors.
        parameters: one parameter per flat tensor, with its gradient, for optimizers that treat all numbers alike.
        wholes: the flat gradients.
    """

    def __init__(self, flats: Sequence[Flat]) -> None:
        self.flats = flats
        self.parameters = [nn.Parameter(flat.whole) for flat in flats]
        self.wholes = [torch.zeros_like(flat.whole) for flat in flats]
        self.parts: list[Tensor] = []
        self.views: list[Tensor] = []
        for flat, parameter, whole in zip(flats, self.parameters, self.wholes, strict=True):
            parameter.grad = whole
            self.parts += flat.parts
            self.views += [whole] if len(flat.parts) == 1 and flat.parts[0].shape == whole.shape else flat.like(whole)

    def compute(self, loss: Tensor) -> None:
        """Set the gradients to those of ``loss``, and to 0 for parameters that it does not depend on."""
        try:
            found: Iterable[Tensor] = torch.autograd.grad(loss, self.parts, materialize_grads=True)
        except RuntimeError as error:
            if loss.requires_grad:
                raise
            raise ModelError(
                "The loss does not depend on the parameters to adapt, so that there is no gradient: forward() of the "
                "model runs under torch.no_grad() or torch.inference_mode(), or calls detach(), .data or .numpy() on "
                "the way to the head. Remove it; the adapter disables gradients itself where it only predicts."
            ) from error
        if any(gradient.is_sparse for gradient in found):  # embeddings have sparse gradients
            found = [gradient.to_dense() for gradient in found]
        torch._foreach_copy_(self.views, list(found))

    def assign_to_parameters(self) -> None:
        """Set ``.grad`` of each parameter of the model, for an optimizer that steps them one by one."""
        for part, view in zip(self.parts, self.views, strict=True):
            part.grad = view


class OptimizerStep:
    """The optimizer of a schedule on an :class:`AdaptableState`, and one step of it.

    Args:
        schedule: schedule of the method, with an optimizer.
        gradients: flat gradients of the trainable parameters.
        trainable: the trainable parameters, which an optimizer of the user steps one by one.
        capturable: True if the step is captured as a CUDA graph.
    """

    def __init__(
        self, schedule: Schedule, gradients: FlatGradients, trainable: Iterable[nn.Parameter], *, capturable: bool
    ) -> None:
        if schedule.optimizer is None:
            raise ValueError("expected a schedule with an optimizer")
        self.optimizer = schedule.optimizer(gradients.parameters if schedule.elementwise else trainable)
        for group in self.optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = capturable
        self._gradients = gradients
        self._elementwise = schedule.elementwise
        self._update = fused_step(self.optimizer) if schedule.elementwise else self.optimizer.step

    def apply(self, loss: Tensor, processes: Communicator) -> Tensor:
        """Take one step on ``loss`` and return the norm of its gradient, a scalar.

        Every process computes the same loss over the samples of all: each takes the gradient of ``loss / size``, and
        the sum over the processes is the gradient of the loss.
        """
        gradients = self._gradients
        gradients.compute(loss if processes.size == 1 else loss / processes.size)
        if not self._elementwise:
            gradients.assign_to_parameters()
        if processes.size > 1:
            for whole in gradients.wholes:
                whole.copy_(processes.reduce(whole))
        norm = total_norm(gradients.wholes)
        self._update()
        return norm


def fused_step(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Return a function equivalent to ``optimizer.step()``, provided that every parameter has a gradient.

    The state remains in ``optimizer.state``. Adam and AdamW with ``fused=True`` call torch's fused kernel directly from
    the second step on; the first step is torch's own and initializes the state.

    Example:
        >>> x = torch.nn.Parameter(torch.zeros(1))
        >>> x.grad = torch.ones(1)
        >>> step = fused_step(torch.optim.Adam([x], lr=0.5, fused=True))
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
    kernel: Callable[..., None], parameter: nn.Parameter, state: Mapping[str, Any], options: Mapping[str, Any]
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


def total_norm(tensors: Sequence[Tensor], order: float = 2.0) -> Tensor:
    """Return the norm of all numbers of ``tensors`` together, a scalar; 0 for no tensors."""
    return _combined([torch.linalg.vector_norm(tensor, order) for tensor in tensors], order)


def total_distance(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean distance between two lists of tensors of the same shapes, a scalar; 0 for no tensors."""
    return _combined([torch.dist(a, b) for a, b in zip(tensors, others, strict=True)], 2.0)


def _combined(norms: Sequence[Tensor], order: float) -> Tensor:
    if len(norms) < 2:
        return norms[0] if norms else torch.zeros(())
    together: Tensor = torch.linalg.vector_norm(
        torch.stack([n.to(norms[0].device, torch.float64) for n in norms]), order
    )
    return together
