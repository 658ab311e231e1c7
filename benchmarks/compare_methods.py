"""Every method on the real data at hand, over several source models: one JSON line a run, and the table.

    python benchmarks/compare_methods.py california --data DIR --sources 5 --out california.jsonl
    python benchmarks/compare_methods.py svhn-subset --data DIR --seed 0 --sources 1 --device cuda --out svhn.jsonl
    python benchmarks/compare_methods.py table california.jsonl

Runs that a file holds already are not made again. Methods with a source model of their own (TTT, DANN) train it.
Nothing is tuned: hyperparameters are the paper's or our stated readings of it.
"""

import argparse
import json
import math
import platform
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

import regtta
from regtta.experiments.datasets import Domain, Shift, data_folder
from regtta.experiments.datasets.california import california
from regtta.experiments.datasets.digit_images import svhn_subset_to_mnist
from regtta.experiments.models import resnet26, tabular_mlp
from regtta.experiments.protocol import evaluate
from regtta.experiments.training import CALIFORNIA, SVHN, Recipe, train
from regtta.experiments.training.dann import AdversarialObjective
from regtta.experiments.training.rotation import RotationObjective
from regtta.methods import METHODS, Method
from regtta.options import described

BATCH = 64


@dataclass(frozen=True)
class Study:
    """One data set with its model and recipe, and the methods to run on it, by the name of their row."""

    shift: Shift
    recipe: Recipe
    head: str
    arms: dict[str, Method]
    images: bool

    def model(self, seed: int, device: str) -> nn.Module:
        """A new model, its weights drawn from ``seed``."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = resnet26() if self.images else tabular_mlp(self.shift.train.inputs.shape[1])
        return made.to(device)


def study_of(name: str, folder: Path, seed: int) -> Study:
    """The data set ``name`` as the source model ``seed`` sees it."""
    if name == "svhn-subset":
        arms = _arms({}) | {"ssa k=25": regtta.SSA(k=25), "oracle, all": regtta.Oracle(trainable="all")}
        return Study(svhn_subset_to_mnist(folder), SVHN, "fc", arms, images=True)
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
    return Study(california(folder, seed=seed), CALIFORNIA, "15", arms, images=False)


def _arms(options: dict[str, object], leave: tuple[str, ...] = ("tent",)) -> dict[str, Method]:
    """Every method with the paper's defaults; ``options`` for those that descend a loss."""
    made = {}
    for name, cls in METHODS.items():
        if name not in leave:
            known = {k: v for k, v in options.items() if name not in ("source", "bn_adapt", "prototype")}
            made[name] = regtta.method(name, **known) if known else cls()
    return made


def runs(name: str, study: Study, seed: int, device: str, done: set[str]) -> Iterator[dict[str, object]]:
    """All runs of source model ``seed`` that are not done yet."""
    wanted = [arm for arm in (*study.arms, *(["dann"] if study.images else [])) if arm not in done]
    shared = [arm for arm in wanted if arm not in ("ttt", "dann")]
    target = study.shift.target.to(device)
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
    target = target.take(order.to(device))
    if shared:
        model = train(study.model(seed, device), study.shift.train, study.recipe, seed=seed)
        yield from _adapted(name, study, model, target, seed=seed, arms={arm: study.arms[arm] for arm in shared})
    if "ttt" in wanted:
        objective = RotationObjective(study.head, 2048)
        model = train(study.model(seed, device), study.shift.train, study.recipe, seed=seed, objective=objective)
        arms = {"ttt: its source": regtta.Source(), "ttt": regtta.TTT(branch=objective.branch.cpu())}
        yield from _adapted(name, study, model, target, seed=seed, arms=arms)
    if "dann" in wanted:
        objective = AdversarialObjective(study.head, 2048, target.inputs, study.recipe.lr)
        model = train(study.model(seed, device), study.shift.train, study.recipe, seed=seed, objective=objective)
        yield from _adapted(name, study, model, target, seed=seed, arms={"dann": regtta.Source()})


def _adapted(
    name: str, study: Study, model: nn.Module, target: Domain, *, seed: int, arms: dict[str, Method]
) -> Iterator[dict[str, object]]:
    device = next(model.parameters()).device
    gathered = [method for method in arms.values() if method.gathers and method.name != "ttt"]
    inputs = study.shift.train.inputs
    source = regtta.collect(model, torch.split(inputs, 256), head=study.head, methods=gathered)
    held = study.shift.validation.to(device)
    validation = evaluate(regtta.Adapter(model, regtta.Source()), held, batch_size=256).scores["offline"].r2
    for arm, method in arms.items():
        outcome = evaluate(regtta.Adapter(model, method, source), target, batch_size=BATCH)
        yield {
            "data": name, "source_seed": seed, "arm": arm, "method": described(method),
            "source": {"rank": source.rank, "valid": source.valid_dimensions, "validation_r2": validation},
            "scores": {protocol: asdict(scores) for protocol, scores in outcome.scores.items()},
            "learned": outcome.learned, "refused": dict(outcome.refused), "diverged": outcome.diverged,
            "recipe": asdict(study.recipe), "batch": BATCH,
            "versions": {"regtta": regtta.__version__, "torch": torch.__version__, "python": platform.python_version()},
            "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        }  # fmt: skip


def table(path: Path) -> str:
    """Markdown: mean ± sd over source models, offline and online, paired difference to Source."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    arms = list(dict.fromkeys(r["arm"] for r in records))
    seeds = sorted({r["source_seed"] for r in records})
    base = {r["source_seed"]: r["scores"]["offline"]["r2"] for r in records if r["arm"] == "source"}
    head = "| method | " + " | ".join(f"{s} {p}" for p in ("offline", "online") for s in ("R²", "RMSE", "MAE"))
    lines = [
        f"{records[0]['data']}, source models {seeds}",
        "",
        f"{head} | ΔR² to Source |",
        "|---" + "|---:" * 7 + "|",
    ]
    for arm in arms:
        mine = [r for r in records if r["arm"] == arm]
        gone = [r for r in mine if r["diverged"]]
        cells = [
            _spread([r["scores"][p][s] for r in mine]) for p in ("offline", "online") for s in ("r2", "rmse", "mae")
        ]
        own = arm in ("dann", "ttt", "ttt: its source")
        gaps = [r["scores"]["offline"]["r2"] - base[r["source_seed"]] for r in mine if r["source_seed"] in base]
        name = f"{arm} (diverged {len(gone)} of {len(mine)}: {gone[0]['diverged']})" if gone else arm
        lines.append(f"| {name} | {' | '.join(cells)} | {'own source model' if own else _spread(gaps, sign='+')} |")
    return "\n".join(lines)


def _spread(values: list[float], sign: str = "") -> str:
    if not values or not all(map(math.isfinite, values)):
        return "–"
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):{sign}.3f} ± {sd:.3f}"


def main() -> None:
    """Make the runs that are missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["california", "svhn-subset", "table"])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sources", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, help="fewer, for a smoke run")
    options = parser.parse_args()
    if options.what == "table":
        print(table(options.file))
        return
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    done = [(r["source_seed"], r["arm"]) for r in map(json.loads, lines)]
    for seed in range(options.seed, options.seed + options.sources):
        study = study_of(options.what, data_folder(options.data), seed)
        if options.epochs:
            study = Study(**{**vars(study), "recipe": Recipe(**{**asdict(study.recipe), "epochs": options.epochs})})
        for record in runs(options.what, study, seed, options.device, {arm for s, arm in done if s == seed}):
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            scores = record["scores"]
            print(seed, record["arm"], {p: round(scores[p]["r2"], 3) for p in scores}, record["diverged"], flush=True)
    print(table(options.out), file=sys.stderr)


if __name__ == "__main__":
    main()
