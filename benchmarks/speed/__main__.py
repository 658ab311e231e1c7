"""Command-line entry point: ``python -m benchmarks.speed --out FOLDER``."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.speed.bench import ON_CPU, ON_GPU, QUICK, Bench
from benchmarks.speed.catalogue import cases_for
from benchmarks.speed.record import FILE, read
from benchmarks.speed.run_cases import run, show
from regtta.errors import RegttaError

EXAMPLES = """\
examples:
  python -m benchmarks.speed --out results/speed/here
  python -m benchmarks.speed --out results/speed/h200 --cases step,profile
  python -m benchmarks.speed --out results/speed/h200 --cases precision --data data --models source-models
  python -m benchmarks.speed --out /tmp/smoke --quick
"""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        description="Measure what adapting costs, as ratios; a run that was broken off goes on where it was.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of speed.json, speed.md and the figures")
    parser.add_argument("--device", help="such as cpu or cuda; the GPU where there is one")
    parser.add_argument("--cases", default="", help="names of cases, or what they begin with, apart by commas")
    parser.add_argument("--list", action="store_true", help="print the names of all cases and end")
    parser.add_argument("--force", action="store_true", help="run those as well that speed.json has already")
    parser.add_argument("--render", action="store_true", help="only write page and figures anew from speed.json")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds, whose numbers mean nothing")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds after which no case begins (400)")
    parser.add_argument("--seconds", type=float, help="that the samples of one comparison may take")
    parser.add_argument("--data", type=Path, help="folder of the real data sets, to score precisions on")
    parser.add_argument("--models", type=Path, help="folder of trained source models (--out with -models)")
    parser.add_argument("--sources", type=int, default=5, help="source models behind a score, 2 at the least (5)")
    parser.add_argument("--threads", type=int, default=1, help="of torch on a CPU (1)")
    options = parser.parse_args(arguments)
    if options.sources < 2:
        parser.error("--sources must be 2 at the least: one source model has no spread")
    return options


def make_bench(options: argparse.Namespace) -> Bench:
    """Return the configuration that the options specify."""
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    effort = QUICK if options.quick else ON_GPU if device.type == "cuda" else ON_CPU
    if options.seconds is not None:
        effort = replace(effort, seconds=options.seconds)
    return Bench(
        device=device,
        out=options.out,
        quick=options.quick,
        effort=effort,
        data=options.data,
        models=options.models,
        sources=options.sources,
        threads=options.threads,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the cases or render their results; return 1 if a case failed or was not reached."""
    options = parse_arguments(arguments)
    bench = make_bench(options)
    if options.list:
        print("\n".join(cases_for(bench)))
        return 0
    try:
        if options.render:
            show(read(options.out / FILE), options.out)
            return 0
        chosen = [name for name in options.cases.split(",") if name]
        missed = run(bench, chosen=chosen, force=options.force, limit=options.limit)
    except RegttaError as error:
        print(error, file=sys.stderr)
        return 2
    if missed:
        print(f"missing: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
