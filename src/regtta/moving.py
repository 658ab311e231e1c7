"""Everything of a model that an adaptation step can change, held in one place."""

import torch
from torch import Tensor, nn

from regtta.parameters import Snapshot, Trainable, freeze_all_but, trainable_parameters


class MovingParts:
    """The parameters that a method moves, the head, and all buffers of the adapter's copy.

    Made once for a copy; it freezes everything that does not move and remembers how it began.

    Attributes:
        trainable: what the optimizer steps, by name.
    """

    def __init__(self, model: nn.Module, head: nn.Linear | None, which: Trainable | None) -> None:
        self.trainable = trainable_parameters(model, head, which)
        freeze_all_but(model, self.trainable.values())
        at_head = set() if head is None else set(head.parameters())
        self._parameters: dict[str, Tensor] = {
            name: parameter
            for name, parameter in model.named_parameters()
            if name in self.trainable or parameter in at_head
        }
        self._buffers = dict(model.named_buffers())
        self._origin = Snapshot(self.tensors().values())
        self._before = Snapshot(self._buffers.values())
        self._began = [parameter.detach().clone() for parameter in self._parameters.values()]
        self._began_norm = _norm(self._began)

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name: the live tensors."""
        return self._parameters | self._buffers

    def remember_buffers(self) -> None:
        """Keep the buffers as they are before a forward pass that may update them."""
        self._before.update()

    def restore_buffers(self) -> None:
        """Take that forward pass back."""
        self._before.restore()

    def restore_origin(self) -> None:
        """Everything as it was when the adapter was made, bit for bit."""
        self._origin.restore()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Make the live tensors equal to ``tensors``, which has the same names."""
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                tensor.copy_(tensors[name])

    def displacement(self) -> float:
        """``‖θ − θ₀‖₂ / ‖θ₀‖₂`` over the parameters; 0 where none can move."""
        if not self._began:
            return 0.0
        with torch.no_grad():
            gaps = [now - then for now, then in zip(self._parameters.values(), self._began, strict=True)]
            return float(_norm(gaps) / self._began_norm.clamp_min(torch.finfo(torch.float32).tiny))


def _norm(tensors: list[Tensor]) -> Tensor:
    return torch.nn.utils.get_total_norm(tensors).double().cpu()
