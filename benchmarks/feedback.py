"""Measure a mixture of the source model and the adapted one whose weights come from labels that arrive late.

    python -m benchmarks.feedback --data DIR                                  # every table with a shift
    python -m benchmarks.feedback --data DIR --only wine --delays 0 512       # a quick check

For each shift one MLP with BatchNorm is trained on the source, and adapts over the target once, in batches of 64 in
random order. The label of a sample is given as soon as ``delay`` further samples have been predicted. Each line of the
table has the online R² of the source model and of the adapted model, and for each delay the R² of the mixture less that
of the better of both: on all samples, and on those that were predicted after the first label had come ("later").
Takes about two minutes on one core.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import regtta
from benchmarks.no_normalisation.shifts import make_dataset, shifts
from benchmarks.no_normalisation.source_models import BATCH, LR, r_squared
from regtta.methods import Method, create_method
from regtta_bench.data import Domain
from regtta_bench.demo.demo_study import one_thread
from regtta_bench.training import make_seeded

BATCH_SIZE = 64
DELAYS = (0, 64, 512)
METHODS = ("bn_adapt", "ssa")
WIDTH, EPOCHS = 64, 8


@dataclass(frozen=True)
class FeedbackRun:
    """Online R² over one stream.

    Attributes:
        source: R² of the source model.
        adapted: R² of the adapted model.
        mixture: R² of the mixture.
        later: R² of the mixture, less that of the better of both models, on the samples that were predicted after the
            first label.
        weight: weight of the adapted model at the end.
    """

    source: float
    adapted: float
    mixture: float
    later: float
    weight: float

    @property
    def difference(self) -> float:
        """R² of the mixture, less that of the better of both models."""
        return self.mixture - max(self.source, self.adapted)


def run_feedback(
    model: nn.Module,
    statistics: regtta.SourceStatistics,
    target: Domain,
    method: Method,
    *,
    delay: int,
    batch_size: int = BATCH_SIZE,
) -> FeedbackRun:
    """Adapt over ``target`` once, and give each label after ``delay`` further samples have been predicted.

    Labels are given between two batches, so that those of a batch arrive at the earliest before the next batch.
    """
    adapted = regtta.Adapter(model, method, statistics)
    mixture = regtta.Adapter(model, method, statistics, serve="mixture", feedback_memory=delay + 2 * batch_size)
    batches = target.inputs.split(batch_size)
    outputs: list[list[Tensor]] = [[], [], []]
    predicted = labelled = 0
    for inputs in batches:
        with torch.no_grad():
            outputs[0].append(model(inputs))
        outputs[1].append(adapted.adapt(inputs).predictions)
        outputs[2].append(mixture.adapt(inputs).predictions)
        predicted += len(inputs)
        labelled = _give_labels(mixture, target.targets, labelled, max(labelled, predicted - delay), batch_size)
    rows = torch.arange(len(target)) >= (delay // batch_size + 1) * batch_size
    whole, later = (
        [r_squared(torch.cat(parts)[chosen], target.take(chosen)) for parts in outputs]
        for chosen in (torch.ones_like(rows), rows)
    )
    weight = mixture.feedback(len(batches) - 1, target.targets[:0], rows=[]).adapted_weight
    return FeedbackRun(*whole, later[2] - max(later[:2]), weight)


def _give_labels(adapter: regtta.Adapter, labels: Tensor, first: int, end: int, batch_size: int) -> int:
    """Give the labels of the samples from ``first`` to ``end`` - 1, step by step, and return ``end``."""
    while first < end:
        step, row = divmod(first, batch_size)
        count = min(batch_size - row, end - first)
        adapter.feedback(step, labels[first : first + count], rows=range(row, row + count))
        first += count
    return end


def train_mlp(train: Domain, seed: int, epochs: int = EPOCHS) -> nn.Module:
    """Return an MLP with BatchNorm, trained on ``train``, in eval mode."""
    columns = train.inputs.shape[1]
    model = make_seeded(
        lambda: nn.Sequential(
            *(nn.Linear(columns, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()),
            *(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()),
            nn.Linear(WIDTH, 1),
        ),
        seed,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(train), generator=generator), BATCH):
            if len(rows) > 1:  # BatchNorm
                loss = functional.mse_loss(model(train.inputs[rows]), train.targets[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return model.eval()


def table_header(delays: Sequence[int]) -> str:
    """Return the first two lines of the Markdown table."""
    columns = [f"delay {delay}" for delay in delays] + [f"later, {delay}" for delay in delays]
    names = ["shift", "method", "samples", "source", "adapted", *columns]
    return f"| {' | '.join(names)} |\n|---|---|{'---:|' * (len(names) - 2)}"


def table_row(shift: str, method: str, samples: int, runs: Sequence[FeedbackRun]) -> str:
    """Return a line of the Markdown table from the runs with all delays."""
    scores = [f"{value:.3f}" if value > -100 else f"{value:,.0f}" for value in (runs[0].source, runs[0].adapted)]
    differences = [f"{value:+.3f}" for value in (*(run.difference for run in runs), *(run.later for run in runs))]
    cells = [shift, method, f"{samples:,}", *scores, *differences]
    return f"| {' | '.join(cells)} |".replace(" -", " −").replace("−0.000", "0.000").replace("+0.000", "0.000")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table in Markdown, line by line."""
    parser = argparse.ArgumentParser(description="Online R² of a mixture with labels that come late.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", default="", help="run only shifts whose name contains this")
    parser.add_argument("--delays", type=int, nargs="+", default=DELAYS, help="delays of the labels in samples")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="names of methods")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    print(table_header(options.delays))
    with one_thread():
        for shift in shifts():
            if shift.network != "mlp" or options.only not in shift.name:
                continue
            dataset = make_dataset(shift, options.data, options.seed)
            model = train_mlp(dataset.train, options.seed)
            statistics = regtta.collect(model, dataset.train.inputs.split(256))
            for name in options.methods:
                method, target = create_method(name), dataset.target
                runs = [run_feedback(model, statistics, target, method, delay=delay) for delay in options.delays]
                print(table_row(shift.name, name, len(target), runs), flush=True)


if __name__ == "__main__":
    main()
