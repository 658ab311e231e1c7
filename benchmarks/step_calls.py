"""Count how often one adaptation step moves from one file of the library to another.

Readers of the code have to follow these calls. The count is the number of Python calls into ``src/regtta`` in another
file than the previous call, for one step of SSA with default options on the CPU, after a few steps of warm-up.

Usage::

    python -m benchmarks.step_calls            # a table of methods
    python -m benchmarks.step_calls --trace    # every call of a step of SSA
"""

import argparse
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from torch import nn

import regtta

ROOT = str(Path(regtta.__file__).parent)
WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Call:
    """Python call into the library: its file, relative to the package, the function, and the depth of the stack."""

    file: str
    function: str
    depth: int


def record_calls(work: Callable[[], object]) -> list[Call]:
    """Return the calls into the library that ``work`` makes, in order."""
    calls: list[Call] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001 - as sys.setprofile requires
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(ROOT):
            calls.append(Call(str(Path(file).relative_to(ROOT)), frame.f_code.co_qualname, _depth(frame)))

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame is not None:
        depth += frame.f_code.co_filename.startswith(ROOT)
        frame = frame.f_back
    return depth


def count_file_changes(calls: list[Call]) -> int:
    """Return the number of calls into another file than the previous call."""
    return sum(before.file != after.file for before, after in itertools.pairwise(calls))


def step_calls(method: regtta.Method, *, images: bool = False) -> list[Call]:
    """Return the calls of one step of ``method`` on a small model of tables or images."""
    torch.manual_seed(0)
    body = (
        nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16))
        if images
        else nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))
    )
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if images else []
    model = nn.Sequential(body, nn.ReLU(), *pool, nn.Linear(16, 1)).eval()
    shape = (1, 12, 12) if images else (8,)
    source = regtta.collect(model, torch.randn(512, *shape).split(64))
    adapter = regtta.Adapter(model, method, source)
    batch = torch.randn(64, *shape) + 1
    for _ in range(WARM_UP_STEPS):
        adapter.adapt(batch)
    return record_calls(lambda: adapter.adapt(batch))


def main() -> None:
    """Print the counts, or the calls of one step."""
    parser = argparse.ArgumentParser(description="Count changes of file in one adaptation step.")
    parser.add_argument("--trace", action="store_true", help="print every call of a step of SSA")
    if parser.parse_args().trace:
        last = ""
        for call in step_calls(regtta.SSA(k=4)):
            print(f"{'*' if call.file != last else ' '} {'  ' * (call.depth - 1)}{call.file} {call.function}")
            last = call.file
        return
    methods = {"ssa": regtta.SSA(k=4), "bn_adapt": regtta.BNAdapt(), "source": regtta.NoAdaptation()}
    print(f"{'method':<12}{'inputs':<9}{'calls':>6}{'changes of file':>17}{'depth':>7}")
    for name, method in methods.items():
        for images in (False, True):
            calls = step_calls(method, images=images)
            depth = max(call.depth for call in calls)
            kind = "images" if images else "table"
            print(f"{name:<12}{kind:<9}{len(calls):>6}{count_file_changes(calls):>17}{depth:>7}")


if __name__ == "__main__":
    main()
