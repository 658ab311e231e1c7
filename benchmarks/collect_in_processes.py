"""Collect source statistics as one of several processes, each with its share of the rows.

    python benchmarks/collect_in_processes.py --rank 0 --size 1 --store /tmp/store

``python -m benchmarks.speed --cases processes`` starts them and compares one process with two. Process 0 prints the
duration in seconds of each pass over all rows.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import distributed as dist

import regtta
from regtta_bench.training import tabular_mlp

COLUMNS, BATCH = 8, 1_000


def seconds_of_passes(samples: int, repeats: int) -> list[float]:
    """Return the durations of ``repeats`` collections over this process's share of ``samples`` rows.

    All processes start each collection together.
    """
    torch.manual_seed(0)
    model = tabular_mlp(COLUMNS).eval()
    rows = torch.randn(samples // dist.get_world_size(), COLUMNS)
    found = []
    for _ in range(repeats + 1):
        dist.barrier()
        start = time.perf_counter()
        source = regtta.collect(model, torch.split(rows, BATCH), head="15", process_group=dist.group.WORLD)
        dist.barrier()
        found.append(time.perf_counter() - start)
        if source.count != samples:
            raise SystemExit(f"collected {source.count} samples, not {samples}")
    return found[1:]  # the first pass is the warm-up


def main() -> None:
    """Join the process group, collect and leave the group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, required=True, help="number of this process, from 0")
    parser.add_argument("--size", type=int, required=True, help="how many there are")
    parser.add_argument("--store", type=Path, required=True, help="a new file, by which they find each other")
    parser.add_argument("--samples", type=int, default=200_000, help="of all processes")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{options.store}", rank=options.rank, world_size=options.size)
    try:
        found = seconds_of_passes(options.samples, options.repeats)
    finally:
        dist.destroy_process_group()
    if options.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
