"""Executions of an adapter to compare, and the bare model in the same arithmetic."""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

import regtta
from benchmarks.speed.subjects import Testbed
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
    """Return the executions to compare on ``device``; channels-last ones for images only."""
    found = ON_GPU if device.type == "cuda" else (*ON_CPU, *((IN_BFLOAT16,) if cpu_has_bfloat16() else ()))
    return found if images else tuple(dict.fromkeys(replace(one, channels_last=False) for one in found))


def cpu_has_bfloat16() -> bool:
    """Return True if this CPU multiplies bfloat16 natively; emulation is slower than float32."""
    there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(there and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def describe_execution(execution: Execution) -> str:
    """Describe an execution in words.

    Example:
        >>> describe_execution(FAST)
        'bfloat16, channels last, compiled, captured'
    """
    parts = {"channels last": execution.channels_last, "compiled": execution.compile, "captured": execution.capture}
    return ", ".join([TITLES[execution.precision], *(name for name, on in parts.items() if on)])


def adapter_on(testbed: Testbed, execution: Execution = PLAIN, guards: Sequence[Guard] = DEFAULT) -> Adapter:
    """Return an adapter with SSA on the model of ``testbed``."""
    subject = testbed.subject
    return regtta.Adapter(
        testbed.model,
        regtta.SSA(k=subject.k),
        testbed.source,
        head=subject.head,
        guards=guards,
        execution=execution,
    )


def bare_forward(model: nn.Module, execution: Execution, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the forward pass in the arithmetic and layout of ``execution``: the cost of serving without regtta."""
    own = copy.deepcopy(model).eval()
    if execution.channels_last:
        own.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        with execution.arithmetic(device):
            outputs: Tensor = own(set_layout(x, execution))
        return outputs

    return forward


def set_layout(x: Tensor, execution: Execution) -> Tensor:
    """Return images in the memory layout of ``execution``."""
    return x.contiguous(memory_format=torch.channels_last) if execution.channels_last and x.ndim == 4 else x


def cycle_over(call: Callable[[Tensor], object], batches: Sequence[Tensor]) -> Callable[[], object]:
    """Return a function that applies ``call`` to the next batch, endlessly."""
    endless = itertools.cycle(batches)
    return lambda: call(next(endless))


class Stream:
    """Endless stream of batches through an adapter, with counts of its updates.

    Args:
        adapter: newly made.
        batches: batches to repeat.
        learning: True if the adapter is expected to learn from them, False if to refuse them.
    """

    def __init__(self, adapter: Adapter, batches: Sequence[Tensor], *, learning: bool) -> None:
        self.adapter = adapter
        self.learning = learning
        self.steps = self.learned = 0
        self._endless = itertools.cycle(batches)

    def __call__(self) -> None:
        """Adapt to the next batch."""
        step = self.adapter.adapt(next(self._endless))
        self.steps += 1
        self.learned += step.diagnostics.verdict.learned

    def remark(self) -> str:
        """Return a note if the adapter did not behave as expected."""
        amiss = self.steps - self.learned if self.learning else self.learned
        did = "were refused" if self.learning else "were learned from"
        return f"{amiss} of {self.steps} batches {did}" if amiss else ""


@contextmanager
def strict_float32() -> Iterator[None]:
    """Disable TF32 within the block, which torch by default allows in cuDNN's convolutions."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
