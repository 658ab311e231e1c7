"""``regtta report``: render runs as a self-contained HTML page."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regtta.cli.outputs import check_output_files, check_suffix
from regtta.report import write_page
from regtta.report.run_kinds import build_page


@dataclass(frozen=True)
class WrittenReport:
    """Headline and path of a written report."""

    headline: str
    path: Path


def make_report(runs: Sequence[Path], out: Path, *, force: bool = False) -> WrittenReport:
    """Write a report on ``runs`` to ``out``.

    Args:
        runs: records of ``regtta adapt``, or the folder of ``regtta demo`` or ``regtta reproduce``.
        out: output HTML file.
        force: replace it if it exists.
    """
    check_suffix("--out", out, (".html",))
    check_output_files({"--out": out}, inputs=[run for run in runs if run.is_file()], force=force)
    command = shlex.join(["regtta", "report", *map(str, runs), "--out", str(out), *(["--force"] if force else [])])
    page = build_page(runs, command)
    return WrittenReport(page.headline, write_page(page, out, overwrite=force))
