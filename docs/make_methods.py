"""Writes methods.md from the METHODS table: ``make docs``."""

import inspect
import re
import sys
from pathlib import Path

from regtta.commands.methods import MethodReport, list_methods
from regtta.methods import METHODS

PAGE = Path(__file__).with_name("methods.md")
INTRODUCTION = """\
# Methods

Made from the table of methods by `make docs`; `regtta methods` prints the same. In the library a method is an
object, `regtta.SSA(k=25)` or `regtta.method("ssa", k=25)`; on the command line, `--method ssa --set k=25`.
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
