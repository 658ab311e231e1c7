"""The ways to run an adapter that are compared, and the bare model in the same arithmetic."""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

import regtta
from benchmarks.speed.subjects import Ground
from regtta.adapter import Adapter
from regtta.execution import FAST, PLAIN, Execution
from regtta.guards import DEFAULT, Guard

TITLES = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16"}
CAPTURED = Execution(precision="bfloat16", channels_last=True, capture=True)
ON_GPU = (
    PLAIN,
    Execution(precision="tf32"),
    Execution(precision="tf32", channels_last=True),
    Execution(precision="bfloat16", channels_last=True),
    CAPTURED,
    FAST,
    Execution(precision="tf32", channels_last=True, compile=True, capture=True),
)
ON_CPU = (PLAIN, Execution(channels_last=True))
IN_BFLOAT16 = Execution(precision="bfloat16", channels_last=True)


def executions(device: torch.device, *, images: bool) -> tuple[Execution, ...]:
    """Those worth comparing on ``device``; only images have channels."""
    found = ON_GPU if device.type == "cuda" else (*ON_CPU, *((IN_BFLOAT16,) if cpu_has_bfloat16() else ()))
    return found if images else tuple(dict.fromkeys(replace(one, channels_last=False) for one in found))


def cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 by itself; elsewhere it is emulated, and slower than float32."""
    there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(there and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def title_of(execution: Execution) -> str:
    """In words.

    Example:
        >>> title_of(FAST)
        'bfloat16, channels last, compiled, captured'
    """
    parts = {"channels last": execution.channels_last, "compiled": execution.compile, "captured": execution.capture}
    return ", ".join([TITLES[execution.precision], *(name for name, on in parts.items() if on)])


def adapter_on(ground: Ground, execution: Execution = PLAIN, guards: Sequence[Guard] = DEFAULT) -> Adapter:
    """SSA on the model of ``ground``."""
    subject = ground.subject
    return regtta.Adapter(
        ground.model, regtta.SSA(k=subject.k), ground.source, head=subject.head, guards=guards, execution=execution
    )


def bare(model: nn.Module, execution: Execution, device: torch.device) -> Callable[[Tensor], Tensor]:
    """The forward pass alone, in the arithmetic and the layout of ``execution``: what serving without regtta costs."""
    own = copy.deepcopy(model).eval()
    if execution.channels_last:
        own.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        with execution.arithmetic(device):
            outputs: Tensor = own(laid_out(x, execution))
        return outputs

    return forward


def laid_out(x: Tensor, execution: Execution) -> Tensor:
    """Images with their channels innermost where ``execution`` has them so."""
    return x.contiguous(memory_format=torch.channels_last) if execution.channels_last and x.ndim == 4 else x


def over(call: Callable[[Tensor], object], batches: Sequence[Tensor]) -> Callable[[], object]:
    """``call`` on one batch after another, again and again."""
    endless = itertools.cycle(batches)
    return lambda: call(next(endless))


class Stream:
    """An adapter that meets one batch after another, and what it made of them.

    Args:
        adapter: newly made.
        batches: met again and again.
        learning: whether it is to learn from them, or to refuse them.
    """

    def __init__(self, adapter: Adapter, batches: Sequence[Tensor], *, learning: bool) -> None:
        self.adapter = adapter
        self.learning = learning
        self.steps = self.learned = 0
        self._endless = itertools.cycle(batches)

    def __call__(self) -> None:
        """One step."""
        step = self.adapter.adapt(next(self._endless))
        self.steps += 1
        self.learned += step.diagnostics.verdict.learned

    def remark(self) -> str:
        """Says so where the adapter did not do what is measured here."""
        amiss = self.steps - self.learned if self.learning else self.learned
        did = "were refused" if self.learning else "were learned from"
        return f"{amiss} of {self.steps} batches {did}" if amiss else ""


@contextmanager
def strict_float32() -> Iterator[None]:
    """No TF32 within, which torch by default allows cuDNN's convolutions."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
