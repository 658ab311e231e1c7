"""What leaving samples out costs a step: the guard itself, and a batch that a sample was left out of.

    python -m benchmarks.outliers_cost          # on a GPU ResNet-50 under FAST as well; some minutes

Steps of SSA take turns in one run. Times are relative to a step under ``regtta.guards.DEFAULT`` without
:class:`regtta.guards.OutlierRows`, on batches of good samples, in the same execution.
"""

import itertools
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import regtta
from benchmarks.speed.subjects import LARGE_MLP, MLP, RESNET26, RESNET50, Ground, ground
from benchmarks.speed.timing import Contestant, Effort, race, ratio, seconds_of
from regtta.execution import FAST, PLAIN, Execution
from regtta.guards import DEFAULT, OutlierRows

WITHOUT = tuple(guard for guard in DEFAULT if not isinstance(guard, OutlierRows))
MEASURED = {"cpu": (MLP, LARGE_MLP, RESNET26), "cuda": (RESNET50, MLP)}


def stepper(scene: Ground, execution: Execution, *, guarded: bool, bad: float | None) -> Callable[[], object]:
    """Return a call that takes one step, on batches with one sample of ``bad`` numbers where that is given."""
    batches: Sequence[Tensor] = [batch.clone() for batch in scene.shifted]
    if bad is not None:
        for batch in batches:
            batch[len(batch) // 2] = bad
    guards = DEFAULT if guarded else WITHOUT
    adapter = regtta.Adapter(scene.model, regtta.SSA(k=100), scene.source, guards=guards, execution=execution)
    turn = itertools.cycle(batches)
    return lambda: adapter.adapt(next(turn))


def main() -> None:
    """Print one row a model and execution."""
    logging.getLogger("regtta").setLevel(logging.ERROR)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(1)
    executions = {"plain": PLAIN} if device.type == "cpu" else {"plain": PLAIN, "FAST": FAST}
    print("| model | execution | with the guard | one sample not finite | one outlier |\n|---|---|---:|---:|---:|")
    for subject in MEASURED[device.type]:
        scene = ground(subject, device)
        for name, execution in executions.items():
            calls = {
                "without": stepper(scene, execution, guarded=False, bad=None),
                "guarded": stepper(scene, execution, guarded=True, bad=None),
                "not finite": stepper(scene, execution, guarded=True, bad=torch.nan),
                "outlier": stepper(scene, execution, guarded=True, bad=1e7),
            }
            contestants = {key: Contestant(call) for key, call in calls.items()}
            for contestant in contestants.values():
                seconds_of(contestant, device, 12)
            times = race(contestants, device, Effort(seconds=30.0))
            found = [ratio(times, key, "without") for key in ("guarded", "not finite", "outlier")]
            cells = [f"{each.median:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in found]
            print(f"| {subject.title} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
