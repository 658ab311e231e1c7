"""Write models.md by running every model of the tests' catalogue: ``python docs/make_architectures.py``.

It takes some minutes, most of them for ONNX, and needs the extra ``dev``.
"""

import inspect
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).with_name("models.md")
INTRODUCTION = '''\
# Models

A model can be adapted if

- it is an `nn.Module` in Python with floating-point weights: no TorchScript, no `torch.export` program, not quantised;
- `copy.deepcopy` can copy it: the adapter works on a copy;
- every tensor that it takes has one row per sample, `(B, ...)`, and so has its prediction;
- its prediction is computed by affine layers, the *head*: `nn.Linear`, 1×1 convolutions, layers of peft. Anything may follow:
  an activation, a scale, a mean over positions, a sum of several heads. Each layer of the head runs once per forward pass.

A model with normalisation layers adapts their scale and shift, others their
[biases](adapting.md#models-without-normalisation-layers).

## Batches

The parameters of `model.forward` decide which entries of a batch are inputs; all others are ignored.

| batch | inputs of the model |
|---|---|
| a tensor | the tensor |
| a dict | by name: all entries that `forward` has a parameter for. `label`, `labels`, `target`, `targets` and `y` are labels, unless `forward` requires them. A single entry may have any name. |
| a tuple or list, one required parameter | its first element; the rest are labels |
| a tuple or list, several required parameters | as many elements, by position; the rest are labels. `((a, b), labels)` is the same. |
| a namedtuple with the names of the required parameters | by name |

A batch with two readings raises an error that shows both. `inputs=` overrides the rules, with a key, an index, a list of them,
or a function from a batch to `(args, kwargs)`:

```python
import regtta
from torch import nn


class House(nn.Module):
    """Price of a house, from a photograph and a table."""

    def __init__(self):
        super().__init__()
        self.photo = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.table = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU())
        self.price = nn.Linear(16, 1)

    def forward(self, image, table):
        return self.price(torch.cat([self.photo(image), self.table(table)], dim=1))


house = House().eval()
batches = [
    {"image": torch.rand(20, 3, 8, 8), "table": torch.randn(20, 5), "sold_for": torch.rand(20)} for _ in range(5)
]
source = regtta.collect(house, batches)  # image= and table=, by name
step = regtta.Adapter(house, "ssa", source, k=4).adapt(batches[0])

renamed = [{"photo": b["image"], "facts": b["table"]} for b in batches]
source = regtta.collect(house, renamed, inputs=["photo", "facts"])  # other names: by position, in this order
source = regtta.collect(house, renamed, inputs=lambda b: ((b["photo"],), {"table": b["facts"]}))
```

## Outputs

The prediction is the tensor that the model returns. If it returns a tuple, list, dict, dataclass or `ModelOutput`, the
prediction is its only tensor, or `logits`; a `loss` is ignored. `output=` selects another one, by key, index or a function:

```python
class WithAttention(nn.Module):
    """Regressor that returns its attention weights as well."""

    def __init__(self):
        super().__init__()
        self.weights, self.norm, self.age = nn.Linear(6, 1), nn.LayerNorm(6), nn.Linear(6, 1)

    def forward(self, x):
        weights = self.weights(x).softmax(dim=1)
        return {"age": self.age(self.norm((weights * x).sum(dim=1))), "weights": weights}


attentive, tokens = WithAttention().eval(), torch.randn(100, 9, 6).split(20)
source = regtta.collect(attentive, tokens, output="age")
adapter = regtta.Adapter(attentive, "ssa", source, output="age", k=4)
assert adapter.predict(tokens[0]).shape == (20, 1)
```

**Mean and variance.** What the columns of `predictions` mean depends on what the model returns:

| the model returns | predictions |
|---|---|
| a tensor `(B, 2)` | its columns, as they are |
| a tuple or dict of tensors of one shape, `(B,)` or `(B, O)` | side by side, in their order: mean, then variance |
| a `torch.distributions.Distribution` | its mean only |

All columns count as outputs, for the weights of SSA and for the monitor. `output=0` (or `output="mean"`) keeps the mean alone,
and `output=lambda normal: torch.stack([normal.mean, normal.stddev], dim=1)` adds the deviation of a distribution.

## Heads and features

The head is found with the first batch: the last layer that determines the prediction, or the smallest set of layers that do.
Its input is the features `(B, D)` that methods align. A head is written as text, in `source.head` and for `head=`:

| text | meaning |
|---|---|
| `fc` | one layer |
| `mean&variance` | two layers with the same input |
| `head+head_dist` | two layers with inputs of their own; the features are both inputs, side by side |
| `score[last]` | the layer runs at several positions (tokens, time steps, pixels), and the model uses the last; also `first` and `mean` |
| `score[matched]` | the model uses another position of each sample, such as its last token that is not padding |
| `head[all]` | one prediction per position; each position counts as a sample of its own |
| `head[all/time-first]` | the same, with positions before samples, `(T, B, D)` |
| `score[custom]` | the features are computed by `features=` |

`head=` names a layer if the search finds another one than you mean. If a model pools the positions of its head in a way that is
not in the table, pass `features=`, a function from the input of the head to features `(B, D)`:

```python
class Weighted(nn.Module):
    """Sum of the predictions of all steps, weighted by their age."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(3), nn.Linear(3, 1)

    def forward(self, series):
        return (self.head(self.norm(series)) * torch.linspace(0, 1, series.shape[1])[:, None]).sum(dim=1)


def last_step(steps):
    return steps[:, -1]


weighted, series = Weighted().eval(), (torch.randn(200, 7, 3)).split(50)
source = regtta.collect(weighted, series, features=last_step)
adapter = regtta.Adapter(weighted, "ssa", source, features=last_step, k=2)
assert source.head == "head[custom]"
```

## Architectures

Written by `python docs/make_architectures.py`, which runs every model of the tests' catalogue (`tests/helpers/architectures`):
small models with random weights, SSA with `k=4`, three batches of twelve samples. *Moved* counts the parameter tensors that
changed, *files* are the formats in which the adapted model was written and gave the same predictions.
'''


def page() -> str:
    """Return the page; runs every model."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers.architectures import CATALOGUE

    header = "| family | model | passed | head found | features | predictions | adapted | moved | files |"
    rows = [row(entry) for entry in CATALOGUE]
    return "\n".join([INTRODUCTION, header, "|---|---|---|---|---:|---|---|---:|---|", *rows]) + "\n"


def row(entry: Any) -> str:
    """Return the row of one model."""
    from helpers.architectures import run_pipeline

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outcome = run_pipeline(entry, folder)
        files = [".safetensors", *(suffix for suffix in (".pt2", ".onnx") if exports(entry, outcome, folder, suffix))]
    adapted = sum(step.adapted for step in outcome.steps)
    shape = ", ".join(["B", *map(str, outcome.after.shape[1:])]) + ("," if outcome.after.ndim == 1 else "")
    cells = [
        entry.family,
        entry.name,
        ", ".join(f"`{option}={_describe(value)}`" for option, value in entry.interface.items()),
        f"`{outcome.adapter.head}`",
        str(outcome.features.shape[-1]),
        f"`({shape})`",
        f"{adapted} of {len(outcome.steps)}",
        f"{len(outcome.moved)}",
        " ".join(f"`{suffix}`" for suffix in files),
    ]
    return f"| {' | '.join(cells)} |"


def exports(entry: Any, outcome: Any, folder: Path, suffix: str) -> bool:
    """Return True if the adapted model can be written in the format of ``suffix``."""
    from regtta.errors import ModelError
    from regtta.persistence import save_model

    adapter = outcome.adapter
    options = {name: value for name, value in entry.interface.items() if name != "features"}
    try:
        save_model(
            folder / f"adapted{suffix}", adapter.export(), adapter.provenance(), entry.draw(5, 21, 0.0), **options
        )
    except ModelError as error:
        sys.stderr.write(f"{entry.name}: {error}\n")
        return False
    return True


def _describe(value: object) -> str:
    if not callable(value):
        return repr(value).replace("'", '"')
    text = inspect.getsource(value).strip().rstrip(",")
    return text.split("=", maxsplit=1)[1] if "lambda" in text else value.__name__


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
