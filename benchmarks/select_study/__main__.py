"""Measure how often ``regtta.select`` chooses right, and what a wrong choice costs, against the number of labels.

    python -m benchmarks.select_study --data DIR --out results/select
    python -m benchmarks.select_study --data DIR --out FOLDER --only wine --sources 1 --draws 20   # a quick check
    python -m benchmarks.select_study --out results/select --tables-only                           # the page alone

For each shift of ``regtta reproduce shifts`` and each of its source models, every default candidate of ``select``
adapts to the whole target without labels, in batches of 64 in random order, and then predicts it. Labelled samples are
drawn from the target at random many times; ``select`` chooses by them, and the choice is scored on all other samples.
Other rules are compared with it: ``select`` with intervals of 90 % confidence, ``select`` with ``correct="affine"``,
and the candidate with the smallest error on the labelled samples. R² is clipped at −1, as in the tables of the suite.

Every source model of a shift is one line of ``runs.jsonl`` in the folder; finished ones are skipped, so that the
command continues where it stopped. ``--models`` names the folder of source models, which ``regtta reproduce shifts``
shares. Tables take a minute for each source model of a shift on one core; images need a GPU (``--device cuda``).
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.select_study.choices import score_rules
from benchmarks.select_study.page import make_page
from regtta.adapter import Adapter
from regtta.errors import RegttaError
from regtta.methods import Method
from regtta.selection import default_candidates
from regtta_bench.data import DataLocation
from regtta_bench.demo.demo_study import one_thread
from regtta_bench.shifts import Shift, select_shifts
from regtta_bench.sweep.log_levels import suppress_recurring_warnings
from regtta_bench.sweep.run_keys import describe_method
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.sweep.runner import Runner, RunnerConfig
from regtta_bench.sweep.source_models import SourceSpec
from regtta_bench.sweep.store import RunStore
from regtta_bench.training import HEADS, eval_transform

RUNS, PAGE = "runs.jsonl", "select.md"
BATCH, DRAWS = 64, 100
REVISION = 1  # increased when the protocol changes, so that runs of an older revision are repeated


def predict_target(
    runner: Runner, spec: SourceSpec, target: str, methods: Mapping[str, Method]
) -> tuple[dict[str, Tensor], Tensor]:
    """Adapt every candidate to the whole target, and return predictions ``(N, O)`` by candidate, and the labels."""
    prepared, domain = runner.load_source(spec), runner.data(spec).target(target)
    domain = domain.take(torch.randperm(len(domain), generator=torch.Generator().manual_seed(0)))
    targets = domain.targets.double().reshape(len(domain), -1)

    def batches(size: int) -> Iterable[Tensor]:
        for part in torch.split(domain.inputs, size):
            yield eval_transform(part.to(runner.config.device), spec.recipe)

    predictions = {}
    for name, method in methods.items():
        adapter = Adapter(prepared.model, method, prepared.statistics(method), head=HEADS[spec.model])
        for batch in batches(BATCH):
            adapter.adapt(batch)
        outputs = torch.cat([adapter.predict(batch).cpu() for batch in batches(4 * BATCH)])
        predictions[name] = outputs.double().reshape(len(domain), -1)
    return predictions, targets


def run_shift(shift: Shift, seed: int, runner: Runner, store: RunStore, draws: int) -> None:
    """Run one source model of a shift, unless the store has it."""
    methods = default_candidates()
    spec = SweepPlan().source_spec(shift.setting, shift.part, "regression", seed)
    key: dict[str, object] = {
        "shift": shift.name,
        "half": shift.half,
        "seed": seed,
        "source": spec.key,
        "candidates": {name: describe_method(method) for name, method in methods.items()},
        "draws": draws,
        "revision": REVISION,
    }
    if key in store:
        print(f"{shift.name}, source model {seed}: finished before", flush=True)
        return
    with suppress_recurring_warnings():
        predictions, targets = predict_target(runner, spec, shift.part.target, methods)
    store.add(key, score_rules(predictions, targets, draws))
    print(f"{shift.name}, source model {seed}: done", flush=True)


def run_study(options: argparse.Namespace, store: RunStore) -> None:
    """Run all shifts, source model by source model."""
    models = options.models or options.out / "models"
    runner = Runner(RunnerConfig(DataLocation(options.data), models, options.device))
    shifts = select_shifts(options.only)
    for seed in range(max(shift.setting.source_seeds for shift in shifts)):
        for shift in shifts:
            if seed < min(options.sources or shift.setting.source_seeds, shift.setting.source_seeds):
                run_shift(shift, seed, runner, store, options.draws)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command-line options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help=f"folder of {RUNS} and {PAGE}")
    parser.add_argument("--models", type=Path, help="folder of source models (OUT/models)")
    parser.add_argument(
        "--only", action="append", default=[], help="shifts, as for regtta reproduce shifts; repeatable"
    )
    parser.add_argument("--sources", type=int, help="source models per shift (those of the suite)")
    parser.add_argument("--draws", type=int, default=DRAWS, help=f"draws of labelled samples ({DRAWS})")
    parser.add_argument("--device", default="cpu", help="device (cpu)")
    parser.add_argument("--tables-only", action="store_true", help="only write the page from the runs")
    options = parser.parse_args(arguments)
    if options.data is None and not options.tables_only:
        parser.error("--data is required, except with --tables-only")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the study and write its page; return 1 if the data cannot be read."""
    options = parse_arguments(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        store = RunStore(options.out / RUNS)
        if not options.tables_only:
            with one_thread():  # the tables' networks are too small for more
                run_study(options, store)
        (options.out / PAGE).write_text(make_page(list(store)), encoding="utf-8")
    except RegttaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"wrote {options.out / PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
