"""Measure false alarms of the guards' tests on autocorrelated source data: hourly measurements in their own order.

    python -m benchmarks.autocorrelation --data DATA     # about two minutes on one core

A third of the hours, drawn at random, is held out from the training of an MLP with BatchNorm and streamed in batches
of 32, in its own order and shuffled. Nothing has shifted in the sense that the source contains all hours of the same
period; a test that finds a shift anyway mistakes the correlation of successive hours for one. The tests of ``Gate``
and ``LabelShiftGuard`` are run with the number of samples and with the effective sample size. The test of
``StationarityGuard`` is not corrected: that batches are not representative is what it looks for.

``DATA`` is described in ``benchmarks/no_normalisation/data.py``.
"""

import argparse
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import regtta
from benchmarks.no_normalisation import data
from regtta.guards import SAFE, Gate, LabelShiftGuard, StationarityGuard
from regtta.statistics import (
    EwmaAutocorrelation,
    EwmaMoments,
    Whitening,
    is_nonstationary,
    min_reweighting_divergence,
    shift_test,
)
from regtta_bench.data import Domain
from regtta_bench.demo.demo_study import one_thread
from regtta_bench.training import make_seeded

BATCH, WIDTH, BLOCKS, EPOCHS, SEEDS = 32, 100, 5, 30, 2
GATE, LABELS, STATIONARY = Gate(), LabelShiftGuard(), StationarityGuard()
COLUMNS = (
    "stream",
    "τ",
    "`Gate`",
    "corrected",
    "`LabelShiftGuard`",
    "corrected",
    "`StationarityGuard`",
    "`SAFE` learns",
)


@dataclass(frozen=True)
class Trained:
    """Source model, its statistics and the held-out hours in their own order."""

    model: nn.Sequential
    statistics: regtta.SourceStatistics
    held_out: Tensor


def make_network(columns: int) -> nn.Sequential:
    """Return an untrained MLP with BatchNorm."""
    widths = [columns, *[WIDTH] * BLOCKS]
    layers = [
        layer
        for narrow, wide in itertools.pairwise(widths)
        for layer in (nn.Linear(narrow, wide, bias=False), nn.BatchNorm1d(wide), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1))


def train(domain: Domain, seed: int) -> Trained:
    """Train on two thirds of the rows, drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(domain), generator=generator)
    rows, held_out = order[: len(order) * 2 // 3], order[len(order) * 2 // 3 :].sort().values
    mean, spread = domain.inputs[rows].mean(0), domain.inputs[rows].std(0, correction=0)
    inputs = ((domain.inputs - mean) / spread).float()
    labels = domain.targets - domain.targets[rows].mean()
    targets = (labels / domain.targets[rows].std(correction=0)).float()
    model = make_seeded(lambda: make_network(inputs.shape[1]), seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4)
    for _ in range(EPOCHS):
        for chosen in rows[torch.randperm(len(rows), generator=generator)].split(64):
            if len(chosen) > 1:
                loss = functional.mse_loss(model(inputs[chosen]), targets[chosen])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    model.eval()
    return Trained(model, regtta.collect(model, inputs[rows].split(256)), inputs[held_out])


def alarm_rates(source: Trained, inputs: Tensor) -> list[float]:
    """Return the mean autocorrelation time and the share of batches with an alarm, test by test."""
    head = source.model[-1]
    assert isinstance(head, nn.Linear)
    whitening = Whitening.from_statistics(source.statistics, head)
    unadapted = regtta.Adapter(source.model, regtta.NoAdaptation(), source.statistics)
    recent, correlation = EwmaMoments(GATE.memory), EwmaAutocorrelation(whitening.dimensions)
    seen, counts, batches = torch.empty(0, whitening.dimensions), torch.zeros(6, dtype=torch.float64), 0
    for batch in inputs.split(BATCH):
        values = whitening(unadapted.features(batch))
        recent.update(values)
        correlation.update(values)
        seen = torch.cat([seen, values])[-STATIONARY.memory :]
        if len(seen) < 2 * STATIONARY.block:
            continue
        found = [float(correlation.time().mean())]
        for inflation in (None, correlation.time()):
            count, level, tolerance = source.statistics.count, GATE.level, GATE.tolerance
            test = shift_test(recent, source_count=count, level=level, tolerance=tolerance, inflation=inflation)
            found += [test.shifted, min_reweighting_divergence(recent, inflation) > LABELS.limit]
        unsteady = is_nonstationary(seen @ whitening.outputs, STATIONARY.block, STATIONARY.level)
        unsteady = unsteady or is_nonstationary(seen, STATIONARY.block, STATIONARY.level, STATIONARY.tolerance)
        counts += torch.tensor([found[0], found[1], found[3], found[2], found[4], unsteady], dtype=torch.float64)
        batches += 1
    return [float(value) for value in counts / batches]


def learned_share(source: Trained, inputs: Tensor) -> float:
    """Return the share of batches that SSA learns from under ``SAFE``."""
    adapter = regtta.Adapter(source.model, regtta.SSA(), source.statistics, guards=SAFE)
    learned = [adapter.adapt(batch).diagnostics.verdict.learned for batch in inputs.split(BATCH)]
    return sum(learned) / len(learned)


def main() -> None:
    """Print the table of docs/guards.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    folder = parser.parse_args().data
    logging.getLogger("regtta").setLevel(logging.ERROR)  # k = 100 exceeds the rank for tables, as expected here
    sources: dict[str, Callable[[], Domain]] = {
        "bike, 2011": lambda: data.bike(folder, 0),
        "PM2.5, Dongsi": lambda: data.air(folder, "Dongsi"),
        "PM2.5, Dongsi, Nov–Mar": lambda: data.air(folder, "Dongsi", data.WINTER),
    }
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---|" + "---:|" * (len(COLUMNS) - 1))
    with one_thread():
        for name, read in sources.items():
            trained = [train(read(), seed) for seed in range(SEEDS)]
            for order in ("own order", "shuffled"):
                rows = []
                for seed, source in enumerate(trained):
                    shuffled = torch.randperm(len(source.held_out), generator=torch.Generator().manual_seed(seed))
                    inputs = source.held_out if order == "own order" else source.held_out[shuffled]
                    rows.append([*alarm_rates(source, inputs), learned_share(source, inputs)])
                time, *shares = torch.tensor(rows).mean(0).tolist()
                print(f"| {name}, {order} | {time:.1f} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")


if __name__ == "__main__":
    main()
