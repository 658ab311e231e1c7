"""Fit the monitor's estimate of the risk of being worse than the source model, on simulated shifts of source data.

    python benchmarks/monitor_risk.py             # six source models of each kind: about 20 minutes on one core
    python benchmarks/monitor_risk.py --sources 2 # a quick check

Source models of two kinds are trained: on handwritten digits (the demo's network) and on synthetic tables. The rest
of each one's *source* data, held out from training and with labels, is shifted in known ways (degraded, scaled,
noised, partly lost) and streamed in random order, with the upper half of the labels alone, in bursts, or sorted by
label, through several methods. After the 12th and the 24th batch of each stream the evidence is recorded, and
whether the predictions of the last 8 batches had a larger squared error than the source model's. No target set of any
experiment is used.

The coefficients are fitted on the first half of the source models and evaluated on the second. Those in
``regtta/monitoring/estimator.py`` are the output of this script; the five signals were selected on the first half as
well.
"""

# ruff: noqa: ARG005 - all shifts have the same three arguments

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the conventional name
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import regtta
from regtta.methods import Method
from regtta.monitoring import RISK_FEATURES, SignalEstimator, risk_features
from regtta.types import StepView
from regtta_bench.data import Domain
from regtta_bench.demo.demo_data import Blur, Brighten, Contrast, Darken, Noise, split_digits, uci_digits
from regtta_bench.demo.demo_model import DigitTraining, train_digit_regressor
from regtta_bench.demo.demo_study import one_thread

BATCH, BATCHES, LOOKS, WINDOW = 32, 24, (12, 24), 8
METHODS: dict[str, Method] = {
    "ssa": regtta.SSA.from_paper(clip=True, k=8),
    "ssa fast": regtta.SSA.from_paper(clip=True, k=8, lr=1e-2),
    "bn_adapt": regtta.BNAdapt(),
    "alignment": regtta.FeatureAlignment(),
    "ssa, BatchNorm as trained": regtta.SSA.from_paper(clip=True, k=8, lr=1e-2, batch_norm="source"),
}
METHODS_A_STREAM = 2
# Orders of the labels. Half of the streams have all labels in random order, where adaptation can help.
ARRANGEMENTS = ("random", "random", "random", "half", "bursts", "sorted")

Shifting = Callable[[Tensor, float, torch.Generator], Tensor]


@dataclass(frozen=True)
class SourceModel:
    """Trained model with its statistics, held-out source data and shifts of that data.

    A shift takes inputs, its strength in (0, 1), and a generator.
    """

    kind: str
    number: int
    model: nn.Module
    statistics: regtta.SourceStatistics
    held_out: Domain
    shifts: dict[str, Shifting]


@dataclass(frozen=True)
class Observation:
    """Evidence at one evaluation of one stream, and the true outcome."""

    source: str
    case: str
    features: tuple[float, ...]
    worse: bool


def digits_source(number: int) -> SourceModel:
    """Train the demo's network on two thirds of its source digits; the rest is held out for the streams."""
    source = split_digits(uci_digits(), number, source=900).source
    learned, held_out = source.take(torch.arange(600)), source.take(torch.arange(600, 900))
    model = train_digit_regressor(learned, number, DigitTraining(epochs=15))
    shifts: dict[str, Shifting] = {
        "none": lambda x, s, g: x,
        "darker": lambda x, s, g: Darken(1 - 0.8 * s).apply(x, g),
        "brighter": lambda x, s, g: Brighten(0.6 * s).apply(x, g),
        "blurred": lambda x, s, g: Blur(0.3 + 2.7 * s).apply(x, g),
        "noisy": lambda x, s, g: Noise(0.4 * s).apply(x, g),
        "less contrast": lambda x, s, g: Contrast(1 - 0.9 * s).apply(x, g),
        "dark and noisy": lambda x, s, g: Noise(0.2 * s).apply(Darken(1 - 0.6 * s).apply(x, g), g),
        "half covered": lambda x, s, g: x * (torch.arange(32) < 32 - round(12 * s)),
    }
    statistics = regtta.collect(model, learned.inputs.split(100), head="head")
    return SourceModel("digits", number, model, statistics, held_out, shifts)


def table_source(number: int) -> SourceModel:
    """Train a network on a random smooth function of ten correlated columns."""
    generator = torch.Generator().manual_seed(number)
    mixing = torch.randn(10, 10, generator=generator) / 10**0.5
    wide, out = torch.randn(10, 16, generator=generator), torch.randn(16, generator=generator)
    inputs = torch.randn(2600, 10, generator=generator) @ mixing
    targets = torch.tanh(inputs @ wide / 3) @ out + 0.1 * torch.randn(2600, generator=generator)
    model = _trained_on_table(inputs[:2000], targets[:2000], number)
    direction, gains = torch.randn(2, 10, generator=generator)
    shifts: dict[str, Shifting] = {
        "none": lambda x, s, g: x,
        "larger": lambda x, s, g: x * (1 + 1.5 * s),
        "smaller": lambda x, s, g: x * (1 - 0.7 * s),
        "moved": lambda x, s, g: x + 2 * s * direction,
        "noisy": lambda x, s, g: x + 2 * s * torch.randn(x.shape, generator=g),
        "lost columns": lambda x, s, g: x * (torch.arange(10) >= round(1 + 4 * s)),
        "other gains": lambda x, s, g: x * (s * gains).exp(),
        "moved and noisy": lambda x, s, g: x + s * direction + s * torch.randn(x.shape, generator=g),
    }
    statistics = regtta.collect(model, inputs[:2000].split(100))
    return SourceModel("table", number, model, statistics, Domain(inputs[2000:], targets[2000:]), shifts)


def _trained_on_table(inputs: Tensor, targets: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [[nn.Linear(width, 64), nn.BatchNorm1d(64), nn.ReLU()] for width in (10, 64)]
    model = nn.Sequential(*layers[0], *layers[1], nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(30):
        for chosen in torch.randperm(len(inputs)).split(100):
            loss = F.mse_loss(model(inputs[chosen]).squeeze(1), targets[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval()


def streams(source: SourceModel) -> Iterator[tuple[str, Domain]]:
    """Yield the held-out source data with every shift in every order, each with a random strength."""
    for number, (shift, arrangement) in enumerate(product(source.shifts, ARRANGEMENTS)):
        generator = torch.Generator().manual_seed(1000 * source.number + number)
        targets = source.held_out.targets
        pool = torch.arange(len(targets))
        if arrangement == "half":
            pool = pool[targets >= targets.median()]
        drawn = pool[torch.randint(len(pool), (BATCH * BATCHES,), generator=generator)]
        if arrangement in ("bursts", "sorted"):
            drawn = drawn[targets[drawn].argsort()]
        if arrangement == "bursts":
            blocks = drawn.split(2 * BATCH)
            drawn = torch.cat([blocks[i] for i in torch.randperm(len(blocks), generator=generator).tolist()])
        strength = float(torch.rand((), generator=generator))
        inputs = source.shifts[shift](source.held_out.inputs[drawn], strength, generator)
        yield f"{shift} {strength:.2f}, {arrangement}", Domain(inputs, targets[drawn])


def observations(source: SourceModel) -> Iterator[Observation]:
    """Yield the observations of every stream with some of the methods, in rotation."""
    names = list(METHODS)
    for number, (case, stream) in enumerate(streams(source)):
        for turn in range(METHODS_A_STREAM):
            name = names[(METHODS_A_STREAM * number + turn) % len(names)]
            for features, worse in _watched(source, METHODS[name], stream):
                yield Observation(f"{source.kind} {source.number}", f"{case}, {name}", features, worse)


class _LastView(regtta.Callback):
    """Callback that keeps the view of the last batch."""

    last: StepView

    def wants_view(self, index: int) -> bool:  # noqa: ARG002 - the view of every batch is wanted
        """Return True."""
        return True

    def on_view(self, adapter: regtta.Adapter, view: StepView) -> None:  # noqa: ARG002 - only the view is used
        """Keep the view."""
        self.last = view


def _watched(source: SourceModel, method: Method, stream: Domain) -> Iterator[tuple[tuple[float, ...], bool]]:
    """Yield the features of the evidence, and True if recent predictions were worse than the source model's."""
    views = _LastView()
    adapter = regtta.Adapter(source.model, method, source.statistics, callbacks=[views])
    estimator = SignalEstimator(
        source.statistics, adapter.source_head(), memory=256, least=32, level=1e-4, tolerance=0.1
    )
    errors = []
    for number, (batch, truth) in enumerate(
        zip(stream.inputs.split(BATCH), stream.targets.split(BATCH), strict=True), start=1
    ):
        adapter.adapt(batch)
        view = views.last
        estimator.update(view)
        passes = (view.answered, view.source)
        errors.append([float(F.mse_loss(forward.outputs.squeeze(1), truth)) for forward in passes])
        evidence = estimator.evidence()
        if number in LOOKS and evidence is not None:
            adapted, unadapted = np.mean(errors[-WINDOW:], axis=0)
            yield risk_features(evidence), bool(adapted > unadapted)


def fitted(seen: list[Observation]) -> LogisticRegression:
    """Return the risk model fitted on ``seen``."""
    features, worse = _arrays(seen)
    return LogisticRegression(C=10.0, max_iter=1000).fit(features, worse)


def report(score: LogisticRegression, judged: list[Observation]) -> None:
    """Print the discrimination and calibration of ``score`` on ``judged``."""
    features, worse = _arrays(judged)
    risk = score.predict_proba(features)[:, 1]
    names = np.array([[item.source.split()[0], item.case.split(", ")[1]] for item in judged])
    print(f"\njudged on {len(judged)} looks at {len(judged) // len(LOOKS)} runs, {worse.mean():.0%} of them worse")
    for kind in ("all", *np.unique(names)):
        of_kind = (names == kind).any(axis=1) | (kind == "all")
        auc, brier = roc_auc_score(worse[of_kind], risk[of_kind]), np.mean((risk - worse)[of_kind] ** 2)
        base = worse[of_kind].mean() * (1 - worse[of_kind].mean())
        print(f"{kind:8} AUC {auc:.3f}   Brier score {brier:.3f} (of the base rate: {base:.3f})   n = {of_kind.sum()}")
    print("\nrisk          looks   mean risk   worse")
    for low in np.arange(0, 1, 0.2):
        within = (risk >= low) & (risk < low + 0.2 + 1e-9)
        if within.any():
            mean, share = risk[within].mean(), worse[within].mean()
            print(f"{low:.1f} to {low + 0.2:.1f}   {within.sum():6}   {mean:9.2f}   {share:.2f}")
    raised = risk > 0.7
    print(
        f"\nabove 0.7: {raised.sum()} looks, {worse[raised].mean():.0%} worse; {raised[worse].mean():.0%} of the worse"
    )


def _arrays(items: list[Observation]) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.array([item.features for item in items]), np.array([item.worse for item in items])


def main() -> None:
    """Train the source models, run the streams, fit the risk model and print its evaluation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=6, help="source models of each kind")
    options = parser.parse_args()
    first: list[Observation] = []
    second: list[Observation] = []
    with one_thread():
        for number, make in product(range(options.sources), (table_source, digits_source)):
            found = list(observations(make(number)))
            (first if number < options.sources / 2 else second).extend(found)
            print(f"{found[0].source}: {len(found)} looks, {np.mean([item.worse for item in found]):.0%} worse")
    score = fitted(first)
    print(f"\nfitted on {len(first)} looks at {len(first) // len(LOOKS)} runs, each of a stream through a method")
    print(f"INTERCEPT = {score.intercept_[0]:.2f}")
    print(f"COEFFICIENTS = ({', '.join(f'{weight:.2f}' for weight in score.coef_[0])})  # {', '.join(RISK_FEATURES)}")
    report(score, second)


if __name__ == "__main__":
    main()
