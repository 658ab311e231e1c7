"""Curves of R² along the stream, for the figure."""

import numpy as np

from regtta.experiments.analysis.running_scores import RunningScores
from regtta.experiments.stress.arms import PLAIN, SAFELY, SOURCE
from regtta.experiments.stress.findings import WHOLE_AT, batch_sizes
from regtta.experiments.stress.results import Results
from regtta.experiments.stress.streams import KINDS

SHOWN = (("Source", SOURCE, PLAIN), ("ssa, plain", "ssa", PLAIN), ("ssa, safe", "ssa", SAFELY))


def shown_batch_size(results: Results) -> int:
    """Return 64 if there are runs of that batch size, else the largest available one."""
    sizes = batch_sizes(results)
    return WHOLE_AT if WHOLE_AT in sizes else max(sizes, default=0)


def curves_of(results: Results) -> tuple[RunningScores, ...]:
    """Return the curves of each kind of stream that SSA was run on, averaged over source models and shifts."""
    size, curves = shown_batch_size(results), []
    for kind in KINDS:
        lines = {}
        for name, arm, guards in SHOWN:
            runs = [run for run in results.of(arm, kind, guards) if run.batch_size == size or arm == SOURCE]
            slices = {len(run.slices) for run in runs}
            if len(slices) == 1:
                lines[name] = np.array([run.slices for run in runs]).mean(axis=0)
        if len(lines) > 1:
            curves.append(RunningScores(kind, lines))
    return tuple(curves)
