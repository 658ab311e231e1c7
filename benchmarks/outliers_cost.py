"""Measure the cost of excluding samples: the guard itself, and steps on batches with an excluded sample.

    python -m benchmarks.outliers_cost          # on a GPU also ResNet-50 with FAST; a few minutes

Steps of SSA are timed alternately in one run. Times are relative to a step under ``regtta.guards.DEFAULT`` without
:class:`regtta.guards.OutlierRows`, on batches of good samples, in the same execution.
"""

import itertools
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import regtta
from benchmarks.speed.subjects import LARGE_MLP, MLP, RESNET26, RESNET50, Testbed, make_testbed
from benchmarks.speed.timing import Effort, TimedCall, ratio, seconds_of, time_in_turns
from regtta.execution import FAST, PLAIN, Execution
from regtta.guards import DEFAULT, OutlierRows

WITHOUT = tuple(guard for guard in DEFAULT if not isinstance(guard, OutlierRows))
MEASURED = {"cpu": (MLP, LARGE_MLP, RESNET26), "cuda": (RESNET50, MLP)}


def stepper(testbed: Testbed, execution: Execution, *, guarded: bool, bad: float | None) -> Callable[[], object]:
    """Return a call that takes one step, on batches with one sample of ``bad`` values if given."""
    batches: Sequence[Tensor] = [batch.clone() for batch in testbed.shifted]
    if bad is not None:
        for batch in batches:
            batch[len(batch) // 2] = bad
    guards = DEFAULT if guarded else WITHOUT
    adapter = regtta.Adapter(
        testbed.model, regtta.SSA.from_paper(clip=True, k=100), testbed.source, guards=guards, execution=execution
    )
    turn = itertools.cycle(batches)
    return lambda: adapter.adapt(next(turn))


def main() -> None:
    """Print one row per model and execution."""
    logging.getLogger("regtta").setLevel(logging.ERROR)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(1)
    executions = {"plain": PLAIN} if device.type == "cpu" else {"plain": PLAIN, "FAST": FAST}
    print("| model | execution | with the guard | one sample not finite | one outlier |\n|---|---|---:|---:|---:|")
    for subject in MEASURED[device.type]:
        testbed = make_testbed(subject, device)
        for name, execution in executions.items():
            calls = {
                "without": stepper(testbed, execution, guarded=False, bad=None),
                "guarded": stepper(testbed, execution, guarded=True, bad=None),
                "not finite": stepper(testbed, execution, guarded=True, bad=torch.nan),
                "outlier": stepper(testbed, execution, guarded=True, bad=1e7),
            }
            calls_by_name = {key: TimedCall(call) for key, call in calls.items()}
            for timed in calls_by_name.values():
                seconds_of(timed, device, 12)
            times = time_in_turns(calls_by_name, device, Effort(seconds=30.0))
            found = [ratio(times, key, "without") for key in ("guarded", "not finite", "outlier")]
            cells = [f"{each.median:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in found]
            print(f"| {subject.title} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
