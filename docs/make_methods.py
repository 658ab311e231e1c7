"""Writes methods.md from the METHODS table: ``make docs``."""

import inspect
import re
import sys
from pathlib import Path

from regtta.cli.method_table import MethodReport, list_methods
from regtta.methods import METHODS

PAGE = Path(__file__).with_name("methods.md")
INTRODUCTION = """\
# Methods

Made from the table of methods by `make docs`; `regtta methods` prints the same. In the library a method is an
object, `regtta.SSA(k=25)` or `regtta.create_method("ssa", k=25)`; on the command line, `--method ssa --set k=25`.

**Sums.** `regtta.create_method("tent+ssa", k=25)` minimises the sum of both losses, `"tent+0.5*ssa"` a weighted sum.
Trainable parameters, optimizer and BatchNorm mode are those of the sum, by default those of its first term; any other
option is passed to every term that has it.

**Methods of other packages.** A package adds a method to `regtta.METHODS`, and thereby to the command line, by an entry
point of the group `regtta.methods`:

```toml
[project.entry-points."regtta.methods"]
mine = "my_package.methods:Mine"  # a subclass of regtta.methods.Method, with options that have defaults
```

Names of methods of regtta cannot be overridden.

**Passes over the source.** One pass of `regtta.collect(model, loader)` gives the moments, which is all that `ssa`,
`feature_alignment` and `rsd` need (RSD's bases follow from mean and covariance). Histograms for `feature_restoration` need
the range of every dimension first, so `collect(model, loader, methods=[regtta.FeatureRestoration()])` makes two passes.
`TTT(branch=layer)` adds none: the branch was trained with the model and is only stored. All of it lies in one file.

**Several outputs.** `ssa` and `feature_alignment` weigh a dimension by the norm of its effect on all outputs,
`α_d = 1 + ‖W v_d‖₂`, which is the paper's for one. `prototype` has one prototype and refuses several outputs; `tent` needs
several logits.

**Other layers.** Everything but `bn_adapt` works on models with LayerNorm, GroupNorm or InstanceNorm instead of BatchNorm.

**Classifiers.** `ssa` aligns the features of a classifier too, alone or with Tent; the paper sets α = 1 there:
`regtta.create_method("tent+ssa", weighting=False)`.

DANN (Ganin et al. 2016) trains with source and target together, so it is no test-time method and not in this table.
"""


def page() -> str:
    """The whole page."""
    reports = list_methods()
    rows = "\n".join(f"| [`{r.name}`](#{r.name}) | {r.summary} | {_needs(r)} | {r.paper} |" for r in reports)
    table = f"| name | what it does | needs | paper |\n|---|---|---|---|\n{rows}\n"
    return "\n".join([INTRODUCTION, table, *(section(report) for report in reports)])


def section(report: MethodReport) -> str:
    """One method: where it comes from, its formula, its options."""
    cls = METHODS[report.name]
    about = inspect.cleandoc(inspect.getmodule(cls).__doc__ or "")
    body = re.split(r"^(?:Args|Example):$", inspect.cleandoc(cls.__doc__ or ""), flags=re.M)[0].strip()
    parts = [f"## {report.name}", about, f"**`regtta.{cls.__name__}`**: {body}".replace("``", "`")]
    if report.options:
        rows = "\n".join(
            f"| `{o.name}` | {_cell(o.type)} | `{o.default}` | {_cell(o.meaning)} |" for o in report.options
        )
        parts.append(f"| option | type | default | meaning |\n|---|---|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def _needs(report: MethodReport) -> str:
    return ", ".join(report.needs) or "nothing"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else "docs/methods.md is stale: make docs")
    PAGE.write_text(page(), encoding="utf-8")
