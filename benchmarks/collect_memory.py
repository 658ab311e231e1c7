"""Measure the peak memory of one ``regtta.collect`` over a given number of rows, generated on the fly.

    python benchmarks/collect_memory.py --samples 1000000

The peak is that of the process, so each size needs a separate process: ``python -m benchmarks.speed --cases memory``
runs several and compares them.
"""

import argparse
import json
import resource
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import regtta

WIDTH, BATCH, COLUMNS = 256, 500, 16
RESIDENT, ON_GPU = "resident memory of the process", "GPU memory"


def peaks_after(samples: int, device: torch.device) -> dict[str, float]:
    """Collect over ``samples`` rows and return the peaks of this process in MiB, by kind of memory."""
    model = nn.Sequential(nn.Linear(COLUMNS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(device)

    def rows() -> Iterator[Tensor]:
        for _ in range(samples // BATCH):
            yield torch.randn(BATCH, COLUMNS)

    source = regtta.collect(model, rows())
    if source.count != samples:
        raise SystemExit(f"collected {source.count} samples, not {samples}")
    peaks = {RESIDENT: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if device.type == "cuda":
        peaks[ON_GPU] = torch.cuda.max_memory_allocated(device) / 2**20
    return peaks


def main() -> None:
    """Print the peaks as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # the peaks do not depend on it, and the synchronisation of threads is slow
    print(json.dumps(peaks_after(options.samples, options.device)))


if __name__ == "__main__":
    main()
