"""Every method on the real data at hand, over several source models: one JSON line a run, and the table.

    python benchmarks/compare_methods.py california --data DIR --sources 5 --out california.jsonl
    python benchmarks/compare_methods.py svhn-subset --data DIR --seed 0 --sources 1 --device cuda --out svhn.jsonl
    python benchmarks/compare_methods.py table california.jsonl

Runs that a file holds already are not made again, and with --models DIR no source model is trained twice. Methods with
a source model of their own (TTT, DANN) train it. Nothing is tuned: hyperparameters are the paper's or our readings.
"""

import argparse
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

import regtta
from regtta.experiments.comparison import paired_difference
from regtta.experiments.datasets import Domain, Shift, data_folder
from regtta.experiments.datasets.california import california
from regtta.experiments.datasets.digit_images import svhn_subset_to_mnist
from regtta.experiments.models import resnet26, tabular_mlp
from regtta.experiments.protocol import evaluate
from regtta.experiments.sources import SourceModels, SourceSpec
from regtta.experiments.store import RunStore
from regtta.experiments.training import CALIFORNIA, SVHN, Objective, Recipe, train
from regtta.experiments.training.dann import AdversarialObjective
from regtta.experiments.training.loop import Regression
from regtta.experiments.training.rotation import RotationObjective
from regtta.experiments.training.seeding import seeded
from regtta.methods import METHODS, Method
from regtta.options import described

BATCH = 64
OWN_SOURCE = ("ttt: its source", "ttt", "dann")


@dataclass(frozen=True)
class Study:
    """One data set with its model and recipe, and the methods to run on it, by the name of their row."""

    name: str
    shift: Shift
    recipe: Recipe
    head: str
    arms: dict[str, Method]
    images: bool

    def model(self) -> nn.Module:
        """A new model."""
        return resnet26() if self.images else tabular_mlp(self.shift.train.inputs.shape[1])


def study_of(name: str, folder: Path, seed: int) -> Study:
    """The data set ``name`` as the source model ``seed`` sees it."""
    if name == "svhn-subset":
        arms = _arms({}) | {"ssa k=25": regtta.SSA(k=25), "oracle, all": regtta.Oracle(trainable="all")}
        return Study(name, svhn_subset_to_mnist(folder), SVHN, "fc", arms, images=True)
    # Three readings of how California is adapted: the paper's text, the released one, and a gentler affine one.
    text = {"batch_norm": "source"}
    gentle = {"batch_norm": "source", "lr": 1e-4}
    arms = _arms(text, leave=("variance_minimization", "ttt", "tent", "ssa"))
    for reading, options in {
        "text": text,
        "released": gentle | {"trainable": "extractor"},
        "affine 1e-4": gentle,
    }.items():
        arms |= {f"ssa k={k}, {reading}": regtta.SSA(k=k, **options) for k in (5, 10)}
    arms["oracle, all"] = regtta.Oracle(trainable="all", batch_norm="source")
    return Study(name, california(folder, seed=seed), CALIFORNIA, "15", arms, images=False)


def _arms(options: dict[str, object], leave: tuple[str, ...] = ("tent",)) -> dict[str, Method]:
    """Every method with the paper's defaults; ``options`` for those that descend a loss."""
    made = {}
    for name, cls in METHODS.items():
        if name not in leave:
            fixed = name in ("source", "bn_adapt", "prototype")
            made[name] = cls() if fixed else regtta.method(name, **options)
    return made


def make_runs(study: Study, seed: int, device: str, store: RunStore, models: SourceModels) -> Iterator[str]:
    """Make the runs of source model ``seed`` that the store does not hold, and say each in a line."""
    target = study.shift.target.to(device)
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
    target = target.take(order.to(device))
    plans: list[tuple[str, Objective, dict[str, Method]]] = [
        ("regression", Regression(), {arm: method for arm, method in study.arms.items() if arm != "ttt"})
    ]
    if study.images:
        rotation = RotationObjective(study.head, 2048, seed=seed)
        arms = {"ttt: its source": regtta.Source(), "ttt": regtta.TTT(branch=rotation.branch)}
        adversary = AdversarialObjective(study.head, 2048, target.inputs, lr=study.recipe.lr, seed=seed)
        plans += [("rotation", rotation, arms), ("dann", adversary, {"dann": regtta.Source()})]
    for name, objective, arms in plans:
        spec = SourceSpec(study.name, "resnet26" if study.images else "mlp", name, study.recipe, seed)
        missing = {arm: method for arm, method in arms.items() if _specification(spec, arm, method) not in store}
        if missing:
            model = seeded(study.model, seed).to(device)
            parts = {"model": model} | {str(i): module for i, module in enumerate(objective.modules)}
            models.get(
                spec,
                parts,
                lambda m=model, o=objective: train(m, study.shift.train, study.recipe, seed=seed, objective=o),
            )  # type: ignore[misc]
            yield from _adapt(study, spec, model, target, arms=missing, store=store)


def _specification(spec: SourceSpec, arm: str, method: Method) -> dict[str, object]:
    return {"source": asdict(spec), "arm": arm, "method": described(method), "batch": BATCH, "order_seed": spec.seed}


def _adapt(
    study: Study, spec: SourceSpec, model: nn.Module, target: Domain, *, arms: dict[str, Method], store: RunStore
) -> Iterator[str]:
    device = next(model.parameters()).device
    gathered = [method for method in arms.values() if method.gathers and method.name != "ttt"]
    inputs = study.shift.train.inputs
    source = regtta.collect(model, torch.split(inputs, 256), head=study.head, methods=gathered)
    held = study.shift.validation.to(device)
    validation = evaluate(regtta.Adapter(model, regtta.Source()), held, batch_size=256).scores["offline"].r2
    for arm, method in arms.items():
        outcome = evaluate(regtta.Adapter(model, method, source), target, batch_size=BATCH)
        result = {
            "scores": {protocol: scores.plain() for protocol, scores in outcome.scores.items()},
            "learned": outcome.learned, "refused": dict(outcome.refused), "diverged": outcome.diverged,
            "source": {"rank": source.rank, "valid": source.valid_dimensions, "validation_r2": validation},
            "versions": {"regtta": regtta.__version__, "torch": torch.__version__, "python": platform.python_version()},
            "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        }  # fmt: skip
        store.add(_specification(spec, arm, method), result)
        offline, online = (outcome.scores[protocol].r2 for protocol in ("offline", "online"))
        yield f"{spec.seed} {arm}: R² {offline:.3f} offline, {online:.3f} online"


def table(path: Path) -> str:
    """Markdown: mean ± sd over source models, offline and online, paired difference to Source."""
    records = list(RunStore(path))
    by_arm: dict[str, dict[int, dict]] = {}
    for record in records:
        specification = record["specification"]
        by_arm.setdefault(specification["arm"], {})[specification["source"]["seed"]] = record["result"]
    base = {seed: run["scores"]["offline"]["r2"] for seed, run in by_arm["source"].items()}
    head = " | ".join(f"{score} {p}" for p in ("offline", "online") for score in ("R²", "RMSE", "MAE"))
    lines = [
        f"{records[0]['specification']['source']['data']}, {len(base)} source models",
        "",
        f"| method | {head} | ΔR² to Source [95 %] |",
        "|---" + "|---:" * 7 + "|",
    ]
    for arm, runs in by_arm.items():
        gone = [run["diverged"] for run in runs.values() if run["diverged"]]
        cells = [
            _spread([run["scores"][p][score] for run in runs.values()])
            for p in ("offline", "online")
            for score in ("r2", "rmse", "mae")
        ]
        mine = {seed: run["scores"]["offline"]["r2"] for seed, run in runs.items()}
        gap = paired_difference({k: v for k, v in mine.items() if v is not None}, base)
        last = "own source model" if arm in OWN_SOURCE else f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        name = f"{arm} (diverged {len(gone)} of {len(runs)}: {gone[0]})" if gone else arm
        lines.append(f"| {name} | {' | '.join(cells)} | {last} |")
    return "\n".join(lines)


def _spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return "–"
    sd = statistics.stdev(known) if len(known) > 1 else 0.0
    return f"{statistics.fmean(known):.3f} ± {sd:.3f}"


def main() -> None:
    """Make the runs that are missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["california", "svhn-subset", "table"])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--models", type=Path, help="folder of source models to keep and to find")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sources", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, help="fewer, for a smoke run")
    options = parser.parse_args()
    if options.what == "table":
        print(table(options.file))
        return
    store = RunStore(options.out)
    models = SourceModels(options.models or tempfile.mkdtemp())
    for seed in range(options.seed, options.seed + options.sources):
        study = study_of(options.what, data_folder(options.data), seed)
        if options.epochs:
            study = replace(study, recipe=replace(study.recipe, epochs=options.epochs))
        for line in make_runs(study, seed, options.device, store, models):
            print(line, flush=True)
    print(table(options.out), file=sys.stderr)


if __name__ == "__main__":
    main()
