"""Lower bound of the time of a step: minimum bytes and operations over the rates of this device."""

import torch
from torch import Tensor

from benchmarks.speed.bench import Bench
from benchmarks.speed.findings import Fact, Findings, spread
from benchmarks.speed.subjects import Subject, make_testbed
from benchmarks.speed.timing import TimedCall, time_in_turns
from benchmarks.speed.traffic import Traffic, traffic

COPIED = 2**30  # bytes
SIDE = 8192  # side length of the matrices
BYTES, OPERATIONS, FLOOR = "bytes a step must move", "operations a step must do", "floor of a step"
COPY, PRODUCT = "copy, read and written", "matrix product"
ABOUT = """\
For a step in bfloat16 whose forward and backward passes fuse all that can be fused: see benchmarks/speed/traffic.py
for what is counted. The rates are those of a large copy within the device's memory and of a large matrix product,
measured here."""


def floor(subject: Subject, bench: Bench) -> Findings:
    """Count bytes and operations; on a GPU, measure the rates and compute the lower bound of the time."""
    testbed = make_testbed(subject, bench.device)
    least = traffic(testbed.model, testbed.steady[0])
    facts = [
        Fact(BYTES, least.bytes_moved() / 1e9, "GB"),
        Fact(OPERATIONS, least.operations / 1e9, "GFLOP"),
    ]
    if bench.on_gpu:
        facts += _times(least, bench)
    return Findings(f"The floor: {subject.title}", ABOUT, facts=tuple(facts))


def _times(least: Traffic, bench: Bench) -> list[Fact]:
    copied, multiplied = _rates(bench)
    moving, computing = least.bytes_moved() / copied, least.operations / multiplied
    return [
        Fact(COPY, copied / 1e12, "TB/s"),
        Fact(PRODUCT, multiplied / 1e12, "TFLOP/s"),
        Fact("time to move the bytes", 1000 * moving, "ms"),
        Fact("time to do the operations", 1000 * computing, "ms"),
        Fact(FLOOR, 1000 * max(moving, computing), "ms"),
    ]


def _rates(bench: Bench) -> tuple[float, float]:
    """Measure the bytes read and written per second, and the floating-point operations per second."""
    numbers = torch.randn(COPIED // 2, device=bench.device, dtype=torch.bfloat16)
    left, right = (torch.randn(SIDE, SIDE, device=bench.device, dtype=torch.bfloat16) for _ in range(2))
    there = torch.empty_like(numbers)

    def copy() -> Tensor:
        return there.copy_(numbers)

    def multiply() -> Tensor:
        return left @ right

    calls_by_name = {"copy": TimedCall(copy), "multiply": TimedCall(multiply)}
    for timed in calls_by_name.values():
        timed.call()
    times = time_in_turns(calls_by_name, bench.device, bench.effort)
    return 2 * COPIED / spread(times["copy"]).median, 2 * SIDE**3 / spread(times["multiply"]).median
