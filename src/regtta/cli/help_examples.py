"""Example command lines shown in the help, ordered so that they can be run one after the other.

They need a folder with ``mymodel.py`` (a function ``make`` that returns the model, a list ``batches``
of ``(x, y)``), ``weights.safetensors``, and ``source.csv``, ``target.csv`` and ``labelled.csv`` with a column ``y``.
Those on images need ``faces.py`` with a function ``make``, ``faces.safetensors``, and folders ``photos`` and
``new-photos``, the latter with ``labels.csv`` with a column ``age``.
"""

from collections.abc import Mapping
from types import MappingProxyType

_MODEL = "--model mymodel:make --weights weights.safetensors"
_IMAGE_MODEL = "--model faces:make --weights faces.safetensors"

EXAMPLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "collect": (
            f"regtta collect {_MODEL} \\\n    --data source.csv --target y --out stats.safetensors",
            f"regtta collect {_MODEL} \\\n    --data mymodel:batches --out from-loader.safetensors",
            f"regtta collect {_IMAGE_MODEL} \\\n    --data photos --image-size 224 --out photos.safetensors",
        ),
        "check": (
            f"regtta check {_MODEL} \\\n    --stats stats.safetensors --data target.csv --target y",
            f"regtta check {_MODEL} \\\n    --data mymodel:batches --method bn_adapt --json",
        ),
        "adapt": (
            f"regtta adapt {_MODEL} \\\n    --stats stats.safetensors --set k=auto \\\n"
            "    --data target.csv --target y --predictions predictions.csv",
            f"regtta adapt {_MODEL} \\\n    --stats stats.safetensors --set k=2 --set lr=1e-4 \\\n"
            "    --protocol offline --data target.csv --target y \\\n"
            "    --adapted-weights adapted.safetensors --diagnostics steps.jsonl \\\n    --record run.json",
            f"regtta adapt {_MODEL} \\\n    --method bn_adapt --data mymodel:batches --target 1 \\\n"
            "    --predictions from-loader.parquet --export adapted.onnx",
            f"regtta adapt {_MODEL} \\\n    --stats stats.safetensors --data target.csv --target y \\\n"
            "    --predictions long.csv --checkpoint long.safetensors --resume",
            f"regtta adapt {_MODEL} \\\n    --stats stats.safetensors --data target.csv --target y \\\n"
            "    --monitor signals.jsonl --prometheus regtta.prom",
            f"regtta adapt {_IMAGE_MODEL} \\\n    --stats photos.safetensors --set k=auto \\\n"
            "    --data new-photos --image-size 224 --target age --predictions ages.csv",
        ),
        "select": (
            f"regtta select {_MODEL} \\\n    --stats stats.safetensors --data target.csv \\\n"
            "    --labelled labelled.csv --target y",
            f"regtta select {_MODEL} \\\n    --stats stats.safetensors --data target.csv \\\n"
            "    --labelled labelled.csv --target y --correct affine \\\n"
            "    --candidate bn_adapt --candidate ssa:k=2,lr=1e-4 --json",
        ),
        "report": ("regtta report run.json --out adaptation.html",),
        "inspect": (
            "regtta inspect stats.safetensors",
            "regtta inspect stats.safetensors --json",
            "regtta inspect adapted.onnx",
        ),
        "methods": ("regtta methods", "regtta methods ssa"),
        "reproduce": (
            "regtta reproduce --list",
            "regtta reproduce california --data ~/data",
            "regtta reproduce svhn online --data ~/data --download --jobs 4",
            "regtta reproduce svhn-subset --data ~/data --ray auto",
            "regtta reproduce california --data ~/data --quick \\\n    --method mymethods:MyMethod",
            "regtta reproduce shifts --data ~/data --only tables --jobs 2",
            "regtta reproduce shifts --data ~/data --only images \\\n    --source-seed-range 0:1 --out seed0",
            "regtta reproduce shifts --tables-only --out all \\\n    --join seed0/runs.jsonl --join seed1/runs.jsonl",
        ),
        "label-shift": (
            "regtta label-shift demo --out regtta-label-shift",
            "regtta label-shift california --data ~/data \\\n    --out regtta-label-shift-california",
        ),
        "stress": (
            "regtta stress demo --quick",
            "regtta stress demo --jobs 4 --kinds iid,sorted,back --methods ssa,ssa_window",
            "regtta stress california --data ~/data --batch-sizes 8,64",
        ),
        "demo": ("regtta demo --out regtta-demo --seed 1",),
    }
)


def help_with_examples(text: str, command: str) -> str:
    """Return the help of ``command``: ``text``, then its examples with their line breaks kept."""
    # Typer keeps the line breaks of a paragraph that begins with \b. Its markup reads a backslash as an escape only
    # before a bracket, so the backslashes at the ends of lines are printed.
    lines = "\n".join(f"$ {example}" for example in EXAMPLES[command])
    return f"{text}\n\n[bold]Examples[/bold]\n\n\b\n{lines}"
