"""Measure what to adapt in models without normalisation layers.

    python -m benchmarks.no_normalisation --data DIR --out results/no_normalisation
    python -m benchmarks.no_normalisation --data DIR --out FOLDER --sources 1 --only wine   # a quick check
    python -m benchmarks.no_normalisation --out FOLDER --render                             # the page alone

For each shift, source models are trained that differ in their seed, and SSA with every candidate of trainable
parameters adapts each of them over the target once, in batches of 64 in random order. Every finished run is one line of
``runs.jsonl`` in the folder; finished runs are skipped, so that the command continues where it stopped. The page
``no_normalisation.md`` is written from that file. Takes about 20 minutes on one core.
"""

import argparse
import sys
from pathlib import Path

import torch

import regtta
from benchmarks.no_normalisation.candidates import BATCH, Candidate, candidates, score_candidate
from benchmarks.no_normalisation.page import PAGE, RUNS, make_page
from benchmarks.no_normalisation.shifts import Shift, make_dataset, shifts
from benchmarks.no_normalisation.source_models import SourceModels, predict, r_squared
from regtta.errors import RegttaError
from regtta_bench.demo.demo_study import one_thread
from regtta_bench.sweep.log_levels import quiet_loggers
from regtta_bench.sweep.store import RunStore

REVISION = 1  # increased when data, training or candidates change, so that runs of an older revision are repeated


def specification(shift: Shift, candidate: Candidate, seed: int) -> dict[str, object]:
    """Return what identifies a run."""
    return {"shift": shift.key, "candidate": candidate.key, "seed": seed, "revision": REVISION}


def run_source_model(shift: Shift, seed: int, folder: Path, store: RunStore, models: SourceModels) -> None:
    """Train one source model and run the candidates that the store does not have yet."""
    missing = [c for c in candidates(shift.network) if specification(shift, c, seed) not in store]
    if not missing:
        print(f"{shift.key}, source model {seed}: finished before", flush=True)
        return
    dataset = make_dataset(shift, folder, seed)
    model = models.get(shift.network, dataset, seed)
    statistics = regtta.collect(model, torch.split(dataset.train.inputs, BATCH))
    validation = r_squared(predict(model, dataset.validation), dataset.validation)
    print(f"{shift.key}, source model {seed}: validation R² {validation:.3f}, rank {statistics.rank}", flush=True)
    for candidate in missing:
        scores = score_candidate(candidate, model, statistics, dataset.target)
        result = {"validation": round(validation, 5), "rank": statistics.rank, **scores}
        store.add(specification(shift, candidate, seed), result)
        print(f"  {candidate.key}: {scores['online']:.3f} online, {scores['offline']:.3f} offline", flush=True)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command-line options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help=f"folder of {RUNS} and {PAGE}")
    parser.add_argument("--sources", type=int, default=3, help="source models per shift (3)")
    parser.add_argument("--only", default="", help="run only shifts whose name contains this text")
    parser.add_argument("--render", action="store_true", help="only write the page from the runs")
    options = parser.parse_args(arguments)
    if options.data is None and not options.render:
        parser.error("--data is required, except with --render")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the study and write its page; return 1 if the data cannot be read."""
    options = parse_arguments(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        store, models = RunStore(options.out / RUNS), SourceModels()
        with one_thread(), quiet_loggers("regtta"):  # k is limited to the rank, as expected here
            for seed in range(0 if options.render else options.sources):
                for shift in shifts():
                    if options.only in shift.key:
                        run_source_model(shift, seed, options.data, store, models)
        (options.out / PAGE).write_text(make_page(list(store)), encoding="utf-8")
    except RegttaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"wrote {options.out / PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
