"""Evaluate the thresholds of ``regtta.SAFE`` on simulated shifts of held-out *source* data.

    python benchmarks/safe_thresholds.py            # about ten minutes on one core
    python benchmarks/safe_thresholds.py --sources 1

The source models, their held-out source data and its shifts are those of ``monitor_risk.py``. No target set of any
experiment is used. The script answers two questions:

* ``limit`` of ``LabelShiftGuard``: above which size of shift is aligning a stream in random order harmless?
* ``memory`` and ``patience`` of ``StationarityGuard``: which memory and which period of stationarity make SAFE
  harmless on streams sorted by label, in bursts or with a gradual shift as well, and what do they cost on streams in
  random order?

Harm is an online R² below the source model's by more than 0.02.
"""

import argparse
import logging
from collections.abc import Iterator
from itertools import pairwise, product

import torch
from monitor_risk import SourceModel, digits_source, table_source
from torch import Tensor

import regtta
from regtta.guards import DEFAULT, SAFE, Guard, StationarityGuard
from regtta.methods import Method
from regtta.statistics import EwmaMoments, Whitening, min_reweighting_divergence
from regtta_bench.data import Domain
from regtta_bench.demo.demo_study import one_thread

BATCH, LENGTH, HARM = 64, 2048, -0.02
ORDERS = ("random", "sorted", "bursts", "gradual")
MEMORY_AND_PATIENCE = ((128, 128), (256, 256), (512, 512), (1024, 512), (1024, 1024))
METHODS: dict[str, Method] = {
    "ssa": regtta.SSA.from_paper(clip=True),
    "ssa, window": regtta.SSA.from_paper(clip=True, window=64, batch_norm="blended"),
    "bn_adapt": regtta.BNAdapt(),
}


def drawn(source: SourceModel, shift: str, order: str, generator: torch.Generator, strength: float) -> Domain:
    """Draw ``LENGTH`` held-out source samples, shifted, in one of ``ORDERS``."""
    rows = torch.randint(len(source.held_out), (LENGTH,), generator=generator)
    targets = source.held_out.targets
    if order in ("sorted", "bursts"):
        rows = rows[targets[rows].argsort(stable=True)]
    if order == "bursts":
        runs = rows.split(48)
        rows = torch.cat([runs[i] for i in torch.randperm(len(runs), generator=generator).tolist()])
    clean = source.held_out.inputs[rows]
    shifted = source.shifts[shift](clean, strength, generator)
    if order == "gradual":
        when = torch.rand(LENGTH, generator=generator) < torch.linspace(0, 1, LENGTH)
        shifted = torch.where(when.view(-1, *[1] * (clean.ndim - 1)), shifted, clean)
    return Domain(shifted, targets[rows])


def r_squared(predictions: Tensor, targets: Tensor) -> float:
    """Return R² of the predictions for a whole stream."""
    squares = (predictions.reshape(-1) - targets).square().sum() / (targets - targets.mean()).square().sum()
    return 1 - float(squares)


def gain(source: SourceModel, method: Method, stream: Domain, guards: tuple[Guard, ...]) -> float:
    """Return the difference of online R² to the source model's."""
    adapter = regtta.Adapter(source.model, method, source.statistics, guards=guards)
    adapted = torch.cat([adapter.adapt(batch).predictions for batch in stream.inputs.split(BATCH)])
    with torch.no_grad():
        plain = torch.cat([source.model(batch) for batch in stream.inputs.split(256)])
    return r_squared(adapted, stream.targets) - r_squared(plain, stream.targets)


def shift_size(source: SourceModel, stream: Domain) -> float:
    """Return the minimum reweighting divergence that explains the first 256 samples."""
    head = dict(source.model.named_modules())[source.statistics.head]
    assert isinstance(head, torch.nn.Linear)
    whitening = Whitening.from_statistics(source.statistics, head)
    adapter = regtta.Adapter(source.model, regtta.NoAdaptation(), source.statistics)
    recent = EwmaMoments(128)
    for batch in stream.inputs[:256].split(32):
        recent.update(whitening(adapter.features(batch)))
    return min_reweighting_divergence(recent)


def sources(count: int) -> Iterator[SourceModel]:
    """Yield ``count`` source models of each kind."""
    for make in (digits_source, table_source):
        for number in range(count):
            yield make(number)


def ask_limit(count: int) -> None:
    """Print harm by the size of the shift, for streams in random order."""
    found: list[tuple[str, float, float]] = []
    for source in sources(count):
        for number, shift in enumerate(source.shifts):
            for turn in range(4):
                generator = torch.Generator().manual_seed(1000 * source.number + 10 * number + turn)
                strength = float(torch.rand((), generator=generator))
                stream = drawn(source, shift, "random", generator, strength)
                short = Domain(stream.inputs[:768], stream.targets[:768])
                found.append((source.kind, shift_size(source, short), gain(source, METHODS["ssa"], short, DEFAULT)))
    edges = (0.0, 1.0, 4.0, 9.0, 25.0, 100.0, float("inf"))
    print("kind     reweighting needed   streams  harmed  mean gain  worst")
    for kind in ("digits", "table"):
        for low, high in pairwise(edges):
            gains = [value for name, size, value in found if name == kind and low <= size < high]
            if gains:
                harmed = sum(value < HARM for value in gains)
                mean = sum(gains) / len(gains)
                print(f"{kind:8} {low:6g} to {high:<8g} {len(gains):10} {harmed:7} {mean:+10.3f} {min(gains):+7.3f}")


def ask_memory(count: int) -> None:
    """Print harm and gain with SAFE by memory and patience of its stationarity guard."""
    trained = list(sources(count))
    print("\nmemory  patience  order     streams  harmed  mean gain  worst")
    for (memory, patience), order in product(MEMORY_AND_PATIENCE, ORDERS):
        steady = StationarityGuard(memory=memory, patience=patience)
        guards = tuple(steady if isinstance(guard, StationarityGuard) else guard for guard in SAFE)
        gains = []
        for source in trained:
            for number, shift in enumerate(list(source.shifts)[1:]):
                generator = torch.Generator().manual_seed(7000 + 1000 * source.number + number)
                stream = drawn(source, shift, order, generator, strength=0.6 + 0.1 * (number % 5))
                method = list(METHODS.values())[number % len(METHODS)]
                gains.append(gain(source, method, stream, guards))
        harmed, mean = sum(value < HARM for value in gains), sum(gains) / len(gains)
        row = f"{memory:6}  {patience:8}  {order:8} {len(gains):8} {harmed:7} {mean:+10.3f} {min(gains):+7.3f}"
        print(row, flush=True)


def main() -> None:
    """Print the results for both questions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=3, help="source models of each kind")
    count = parser.parse_args().sources
    logging.getLogger("regtta").setLevel(logging.ERROR)  # k = 100 exceeds the rank for tables, as expected here
    with one_thread():
        ask_limit(count)
        ask_memory(count)


if __name__ == "__main__":
    main()
