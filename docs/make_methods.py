"""Write methods.md from the registry METHODS: ``make docs``."""

import inspect
import re
import sys
from pathlib import Path

from regtta.cli.method_table import MethodReport, list_methods
from regtta.methods import METHODS

PAGE = Path(__file__).with_name("methods.md")
INTRODUCTION = """\
# Methods

Generated from the registry of methods by `make docs`; `regtta methods` prints the same. A method is passed to the adapter
by its name, `regtta.Adapter(model, "ssa", source, k=25)`, or as an object, `regtta.SSA(k=25)` or
`regtta.create_method("ssa", k=25)`; on the command line, `--method ssa --set k=25`. [Auto](auto.md) is the method to begin with.

**Sums.** `regtta.create_method("tent+ssa", k=25)` minimises the sum of both losses, `"tent+0.5*ssa"` a weighted sum.
Trainable parameters, optimizer and BatchNorm mode are those of the sum, by default those of its first term; any other
option is passed to every term that has it.

**Methods of other packages.** A package adds a method to `regtta.METHODS`, and thereby to the command line, by an entry
point of the group `regtta.methods`:

```toml
[project.entry-points."regtta.methods"]
mine = "my_package.methods:Mine"  # a subclass of regtta.Method; every option has a default
```

Built-in names cannot be overridden.

**Passes over the source.** `regtta.collect(model, loader)` computes the moments in one pass, which is sufficient for `ssa`, `auto`,
`feature_alignment`, `rsd`, `cwsa`, `psc`, `dare_gram`, `recentre`, `recolour` and `consistency` (bases and Gram matrices follow
from mean and covariance). The histograms of `feature_restoration` require
the range of every dimension first, so `collect(model, loader, methods=[regtta.FeatureRestoration()])` takes two passes.
`actmad` needs the moments of activations, collected in the same pass: `collect(model, loader, methods=[regtta.ActMAD()])`.
`TTT(branch=layer)` requires no pass: the branch was trained with the model and is only stored. All statistics are in one file.

**Several outputs.** `ssa` and `feature_alignment` weight a dimension by the norm of its effect on all outputs,
`α_d = 1 + ‖W v_d‖₂`, which for one output is the paper's weight. `prototype` has one prototype and does not support several
outputs; `tent` needs several logits.

**Averaging towards the source.** `restore=0.01`, an option of every method that minimises a loss, replaces the trained
parameters after every step by `θ ← (1 − ρ) θ + ρ θ₀` with ρ = 0.01: a stream that is long or that returns to the source does
not accumulate displacement.

**Terms.** `consistency` is meant as a term of a sum: `regtta.create_method("ssa+7*consistency")`.

**Methods without gradients.** `recentre` and `recolour` compute a new head in closed form, `recalibrate_once` and `bn_adapt`
update BatchNorm's statistics alone: a step takes one forward pass.

**Other normalisation layers.** All methods except `bn_adapt` and `recalibrate_once` support models with LayerNorm, GroupNorm or InstanceNorm instead of BatchNorm.
In a model without normalisation layers they update the biases: see [Adapting](adapting.md#models-without-normalisation-layers).

**Classifiers.** `ssa` aligns the features of a classifier too, alone or with Tent; the paper sets α = 1 there:
`regtta.create_method("tent+ssa", weighting=False)`.

DANN (Ganin et al. 2016) trains on source and target together. It is not a test-time method, and therefore not in this table.
"""


def page() -> str:
    """Return the whole page."""
    reports = list_methods()
    rows = "\n".join(f"| [`{r.name}`](#{r.name}) | {r.summary} | {_needs(r)} | {r.paper} |" for r in reports)
    table = f"| name | what it does | needs | paper |\n|---|---|---|---|\n{rows}\n"
    return "\n".join([INTRODUCTION, table, *(section(report) for report in reports)])


def section(report: MethodReport) -> str:
    """Return the section of one method: its origin, formula and options."""
    cls = METHODS[report.name]
    about = inspect.cleandoc(inspect.getmodule(cls).__doc__ or "")
    body = re.split(r"^(?:Args|Example):$", inspect.cleandoc(cls.__doc__ or ""), flags=re.M)[0].strip()
    parts = [f"## {report.name}", about, f"**`regtta.{cls.__name__}`**: {body}".replace("``", "`")]
    if report.options:
        rows = "\n".join(
            f"| `{o.name}` | {_cell(o.type)} | `{o.default}` | {_cell(o.meaning)} |" for o in report.options
        )
        parts.append(f"| option | type | default | meaning |\n|---|---|---|---|\n{rows}")
    return _plain_references("\n\n".join(parts)) + "\n"


def _plain_references(text: str) -> str:
    """Replace cross-references of docstrings, such as :class:`regtta.SSA`, by the names alone."""
    return re.sub(r":(?:class|func|meth|mod):`([^`]+)`", r"`\1`", text)


def _needs(report: MethodReport) -> str:
    return ", ".join(report.needs) or "nothing"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else "docs/methods.md is stale: make docs")
    PAGE.write_text(page(), encoding="utf-8")
