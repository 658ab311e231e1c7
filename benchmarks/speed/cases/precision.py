"""Effect of precision: R² after adaptation to the same streams in each, paired over source models."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.speed.bench import Bench
from benchmarks.speed.cases.step import THROUGHOUT, regtta_row
from benchmarks.speed.findings import Findings, Score
from benchmarks.speed.trials import STEPS, Trial, title_of_setting, trials
from benchmarks.speed.variants import strict_float32
from regtta.adapter import Adapter
from regtta.execution import FAST, PLAIN, Execution
from regtta.metrics import RegressionMetrics
from regtta_bench.sweep.log_levels import suppress_recurring_warnings
from regtta_bench.tables import paired_difference

Within = Callable[[], AbstractContextManager[object]]

REFERENCE, AGAIN = "float32 throughout", "float32 throughout, once more"
# By name: the execution of the adapter, and the torch settings it runs under.
PRECISIONS: Mapping[str, tuple[Execution, Within]] = {
    REFERENCE: (PLAIN, strict_float32),
    AGAIN: (PLAIN, strict_float32),
    "float32, torch's defaults": (PLAIN, nullcontext),
    "TF32": (Execution(precision="tf32"), nullcontext),
    "bfloat16": (Execution(precision="bfloat16", channels_last=True), nullcontext),
    "bfloat16, compiled, captured": (FAST, nullcontext),
}
ON_CPU = (REFERENCE, AGAIN, "bfloat16")  # a CPU has no TF32
ABOUT = """\
Offline R² of SSA after one pass over the stream, in the same order in every precision. Differences are to float32
throughout, paired over source models, with 95 % intervals; the second float32 shows by how much one run differs
from the next."""


def precision(setting: str, bench: Bench) -> Findings:
    """Adapt in every precision to the stream of ``setting``."""
    names = tuple(PRECISIONS) if bench.on_gpu else ON_CPU
    found: dict[str, dict[int, Tensor]] = {name: {} for name in names}
    labels: dict[int, Tensor] = {}
    with suppress_recurring_warnings():
        for seed, trial in enumerate(trials(setting, bench)):
            labels[seed] = trial.target.targets.flatten().cpu()
            for name in names:
                found[name][seed] = predictions_after(trial, *PRECISIONS[name])
    title = title_of_setting(setting)
    scores = tuple(
        replace(
            score(title, name, found[name], found[REFERENCE], labels),
            case=STEPS[setting][0],
            row=row_of(name, bench, images=STEPS[setting][1]),
        )
        for name in names
    )
    return Findings(f"What precision changes: {title}", ABOUT, scores=scores)


def row_of(name: str, bench: Bench, *, images: bool) -> str:
    """Return the row of the step's table with the precision ``name``."""
    execution, within = PRECISIONS[name]
    if bench.on_gpu and within is strict_float32:
        return THROUGHOUT
    return regtta_row(execution if images else replace(execution, channels_last=False))


def predictions_after(trial: Trial, execution: Execution, within: Within) -> Tensor:
    """Return predictions (N,) for the whole stream after one pass of adaptation."""
    with within():
        adapter = Adapter(trial.model, trial.method, trial.statistics, head=trial.head, execution=execution)
        batches = [trial.view(inputs) for inputs in torch.split(trial.target.inputs, trial.batch)]
        for batch in batches:
            adapter.adapt(batch)
        return torch.cat([adapter.predict(batch) for batch in batches]).flatten().float().cpu()


def score(
    setting: str,
    name: str,
    found: Mapping[int, Tensor],
    reference: Mapping[int, Tensor],
    labels: Mapping[int, Tensor],
) -> Score:
    """Score predictions by source model, and compute their difference to the reference's."""
    if not all(bool(values.isfinite().all()) for values in (*found.values(), *reference.values())):
        return Score(setting, name, (), None, None)
    own, other = ({seed: r_squared(values, labels[seed]) for seed, values in way.items()} for way in (found, reference))
    gap = paired_difference(own, other)
    moved = [float((found[seed] - reference[seed]).square().mean().sqrt() / labels[seed].std()) for seed in found]
    return Score(setting, name, tuple(own.values()), (gap.mean, gap.low, gap.high), sum(moved) / len(moved))


def r_squared(predictions: Tensor, targets: Tensor) -> float:
    """Return R² of predictions (N,)."""
    metrics = RegressionMetrics()
    metrics.update(predictions.unsqueeze(1), targets.unsqueeze(1))
    return metrics.compute().r2
