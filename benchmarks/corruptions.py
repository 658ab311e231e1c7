"""Compare the corruption of a batch with that of the same images one at a time: images per second and their ratio.

    python benchmarks/corruptions.py
    python benchmarks/corruptions.py --sides 32 --images 512 --repeats 5

Both call ``corrupt``; their outputs are checked to be identical. The constants are those of CIFAR-10-C at 32×32 and
those of ImageNet-C above.
"""

import argparse
import time
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regtta_bench.corruptions import CORRUPTIONS, corrupt

Images = NDArray[np.uint8]


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the minimum duration of ``repeats`` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(name: str, images: Images, severity: int, repeats: int) -> tuple[float, float]:
    """Return the images per second of one call for all images, and of one call per image."""
    constants: Literal["imagenet", "cifar"] = "cifar" if images.shape[1] <= 32 else "imagenet"

    def together() -> Images:
        return corrupt(images, name, severity=severity, constants=constants, seed=0)

    def alone() -> Images:
        each = [
            corrupt(image, name, severity=severity, constants=constants, seed=0, indices=[index])
            for index, image in enumerate(images)
        ]
        return np.stack(each)

    if not np.array_equal(together(), alone()):
        raise SystemExit(f"{name}: the batch and the single images differ.")
    return len(images) / seconds(together, repeats), len(images) / seconds(alone, repeats)


def main() -> None:
    """Measure and print one table per image size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[32, 224])
    parser.add_argument("--images", type=int, help="images a batch; 256 at 32×32 and 16 above where not given")
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for side in options.sides:
        count = options.images or (256 if side <= 32 else 16)
        images = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        print(f"\n{count} images of {side}×{side}, severity {options.severity}")
        print(f"{'':18} {'batch':>10} {'one by one':>12} {'ratio':>7}   (images per second)")
        for name in CORRUPTIONS:
            together, alone = measure(name, images, options.severity, options.repeats)
            print(f"{name:18} {together:10.0f} {alone:12.0f} {together / alone:7.2f}")


if __name__ == "__main__":
    main()
