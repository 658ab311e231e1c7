"""Peak memory of ``regtta.collect`` against the number of samples: it must not grow.

Each size runs in a process of its own, whose peak resident memory the operating system reports. What is
printed is each peak over that of the smallest size.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterator

SIZES = (1_000, 10_000, 100_000, 1_000_000)
WIDTH = 256
BATCH = 500


def peak_after(samples: int) -> int:
    """Collect over ``samples`` rows made on the fly; peak resident memory of this process in KiB."""
    import torch

    import regtta

    model = torch.nn.Sequential(torch.nn.Linear(16, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))

    def rows() -> Iterator[torch.Tensor]:
        for _ in range(samples // BATCH):
            yield torch.randn(BATCH, 16)

    source = regtta.collect(model, rows())
    if source.count != samples:
        raise SystemExit(f"collected {source.count} samples, not {samples}")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Run every size in a process of its own and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, help="run this size here and print its peak in KiB")
    arguments = parser.parse_args()
    if arguments.samples is not None:
        print(peak_after(arguments.samples))
        return
    peaks = {size: int(subprocess.check_output([sys.executable, __file__, "--samples", str(size)])) for size in SIZES}
    for size, peak in peaks.items():
        print(f"{size:>9,} samples: peak {peak / 1024:6.0f} MiB, ratio {peak / peaks[SIZES[0]]:.3f}")
    print(json.dumps({"benchmark": "collect_memory", "width": WIDTH, "peak_kib": peaks}))


if __name__ == "__main__":
    main()
