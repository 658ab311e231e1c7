"""Measure the effect of single bad samples on a stream, with and without :class:`regtta.guards.OutlierRows`.

    python benchmarks/outliers.py               # about five minutes on one core
    python benchmarks/outliers.py --sources 1

The source models, their held-out source data and its shifts are those of ``monitor_risk.py``. Streams of 100
batches of 64 samples, unshifted and shifted, are contaminated in four ways. The score is the R² of the adapted model in
eval mode after the stream, on the same samples without contamination, averaged over source models and shifts.
"""

import argparse
import logging
from collections.abc import Callable

import torch
from monitor_risk import SourceModel
from safe_thresholds import r_squared, sources
from torch import Tensor

import regtta
from regtta.guards import DEFAULT, SAFE, Guard, OutlierRows
from regtta_bench.demo.demo_study import one_thread

BATCH, BATCHES = 64, 100


def nothing(inputs: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG001 - all contaminations have the same signature
    """Return the stream unchanged."""
    return inputs


def one_huge(inputs: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG001 - all contaminations have the same signature
    """Multiply one sample of batch 40 by a million."""
    inputs = inputs.clone()
    inputs[40 * BATCH + 3] *= 1e6
    return inputs


def some_large(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Multiply 1 % of the samples by a thousand."""
    rows = torch.rand(len(inputs), generator=generator) < 0.01
    return torch.where(rows.view(-1, *[1] * (inputs.ndim - 1)), inputs * 1000, inputs)


def some_sentinels(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Write 65535 into one number of 1 % of the samples."""
    inputs, flat = inputs.clone(), inputs[0].numel()
    rows = (torch.rand(len(inputs), generator=generator) < 0.01).nonzero().flatten()
    inputs.view(len(inputs), flat)[rows, torch.randint(flat, (len(rows),), generator=generator)] = 65535.0
    return inputs


def some_missing(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Write NaN into one number of 1 % of the samples."""
    inputs = some_sentinels(inputs, generator)
    return torch.where(inputs == 65535.0, torch.nan, inputs)


CONTAMINATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "none": nothing,
    "one sample × 10⁶": one_huge,
    "1 % of samples × 1000": some_large,
    "1 % with a sentinel 65535": some_sentinels,
    "1 % with a NaN": some_missing,
}


def presets() -> dict[str, tuple[Guard, ...]]:
    """Return both presets, with and without the guard."""
    both = {"DEFAULT": DEFAULT, "SAFE": SAFE}
    without = {name: tuple(g for g in guards if not isinstance(g, OutlierRows)) for name, guards in both.items()}
    return {f"{name} without": guards for name, guards in without.items()} | both


def scores(source: SourceModel, shift: str, contaminate: Callable[..., Tensor]) -> tuple[dict[str, float], int]:
    """Return R² after a stream by preset, and the number of samples that the default excluded."""
    generator = torch.Generator().manual_seed(100 + source.number)
    rows = torch.randint(len(source.held_out), (BATCH * BATCHES,), generator=generator)
    clean = source.shifts[shift](source.held_out.inputs[rows], 0.7, generator)
    targets, stream = source.held_out.targets[rows], contaminate(clean, generator)
    found, excluded = {}, 0
    for name, guards in presets().items():
        adapter = regtta.Adapter(source.model, regtta.SSA.from_paper(clip=True), source.statistics, guards=guards)
        left_out = sum(len(step.excluded_rows) for step in adapter.run(stream.split(BATCH)))
        excluded = left_out if name == "DEFAULT" else excluded
        found[name] = r_squared(torch.cat([adapter.predict(batch) for batch in clean.split(512)]), targets)
    return found, excluded


def main() -> None:
    """Print one row per kind of model, stream and contamination."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=2, help="source models of each kind")
    count = parser.parse_args().sources
    logging.getLogger("regtta").setLevel(logging.ERROR)  # k = 100 exceeds the rank for tables, as expected here
    names = list(presets())
    print(f"| model | stream | contamination | {' | '.join(names)} | left out |")
    print(f"|---|---|---|{'---:|' * (len(names) + 1)}")
    with one_thread():
        trained = list(sources(count))
        for kind in ("digits", "table"):
            models = [source for source in trained if source.kind == kind]
            shifts = list(models[0].shifts)
            for stream, chosen in (("unshifted", shifts[:1]), ("shifted", shifts[1:4])):
                for contamination, contaminate in CONTAMINATIONS.items():
                    results = [scores(source, shift, contaminate) for source in models for shift in chosen]
                    means = [sum(found[name] for found, _ in results) / len(results) for name in names]
                    left_out = sum(excluded for _, excluded in results) / len(results)
                    numbers = " | ".join(f"{mean:.3f}" for mean in means)
                    print(f"| {kind} | {stream} | {contamination} | {numbers} | {left_out:.1f} |", flush=True)


if __name__ == "__main__":
    main()
