"""Execution options of an adapter: precision, memory format, compilation and CUDA graphs.

They change speed and rounding, but not what is computed. ``docs/speed.md`` has measurements of each.
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
    """Execution options.

    Args:
        precision: precision of matrix products and convolutions. ``"float32"`` changes neither the model nor torch's
            settings; ``"tf32"`` enables TensorFloat-32 (10-bit mantissa) on GPUs that support it; ``"bfloat16"`` runs
            forward passes under autocast. Weights, moments, losses and optimizer state stay in float32.
        channels_last: use the channels-last memory format for images, which is faster on tensor cores and CPUs.
        compile: compile the forward pass with ``torch.compile``. The first step for each batch shape takes about a
            minute.
        capture: on a GPU, capture the whole step as a CUDA graph after a few warm-up steps, and replay it. A step that
            cannot be captured runs normally, and a warning is logged.
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
        """Return a context manager that sets the precision of forward passes on ``device``."""
        if self.precision == "bfloat16":
            # Autocast's weight cache would outlive a forward pass, and a captured step must not read it.
            return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
        if self.precision == "tf32" and device.type == "cuda":
            return _tf32()
        return contextlib.nullcontext()


PLAIN = Execution()
"""Torch's defaults: float32, no compilation, no CUDA graphs."""

FAST = Execution(precision="bfloat16", channels_last=True, compile=True, capture=True)
"""All options that speed up adaptation on a GPU."""


@contextmanager
def _tf32() -> Iterator[None]:
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = True
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
