"""How the arithmetic of an adapter is carried out: in which precision, laid out how, compiled and captured or not.

None of it changes what is computed, only how fast and to how many digits. ``docs/speed.md`` shows what each is worth.
"""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from regtta.options import check_bool, check_choice

Precision = Literal["float32", "tf32", "bfloat16"]

PRECISIONS: tuple[str, ...] = get_args(Precision)


@dataclass(frozen=True)
class Execution:
    """How to run the model.

    Args:
        precision: of the model's products and convolutions. ``"float32"`` leaves the model as it is and torch's
            settings as they are; ``"tf32"`` lets GPUs that have it round the factors of float32 products to 10 bits;
            ``"bfloat16"`` runs forward passes under autocast. Weights, moments, losses and optimizer stay in float32.
        channels_last: lay images out with their channels innermost, which tensor cores and CPUs prefer.
        compile: compile the forward pass by ``torch.compile``. The first step of each batch shape takes a minute or so.
        capture: on a GPU, replay the whole step from a CUDA graph once it has been made a few times. A step that
            cannot be captured is made as before, and a line in the log says why.
    """

    precision: Precision = "float32"
    channels_last: bool = False
    compile: bool = False
    capture: bool = False

    def __post_init__(self) -> None:
        """Validate fields."""
        check_choice("precision", self.precision, PRECISIONS)
        for name in ("channels_last", "compile", "capture"):
            check_bool(name, getattr(self, name))

    def arithmetic(self, device: torch.device) -> AbstractContextManager[object]:
        """What forward passes on ``device`` run under."""
        if self.precision == "bfloat16":
            # Weights cast once would be kept from pass to pass, which a captured step must not read.
            return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
        if self.precision == "tf32" and device.type == "cuda":
            return _tf32()
        return contextlib.nullcontext()


PLAIN = Execution()
"""Everything as torch does it by itself."""

FAST = Execution(precision="bfloat16", channels_last=True, compile=True, capture=True)
"""All that makes a GPU quicker."""


@contextmanager
def _tf32() -> Iterator[None]:
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = True
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
