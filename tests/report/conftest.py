"""Pages to render, one with awkward content and one with an attack in every text, and a browser to view them.

Tests that need a browser are skipped without one.
"""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.browser_fixtures import browser, opened  # noqa: F401
from helpers.cli_fixtures import refusal, regtta, statistics, workspace  # noqa: F401
from helpers.report_fixtures import reports  # noqa: F401
from regtta.report import Page, ReportCell, ReportFigure, ReportTable, Section, figures, render_html
from regtta.report.figures.style import new_figure

LONG = "a_word_that_is_longer_than_a_telephone_is_wide_" * 3


def cells(*texts: str) -> tuple[ReportCell, ...]:
    return tuple(ReportCell(text) for text in texts)


SCORES = ReportTable(
    "Scores",
    ("method", "R² ↑", "rank"),
    (
        (ReportCell("Source"), ReportCell("0.412 ± 0.031"), ReportCell("third", value=3)),
        (ReportCell("ssa 10"), ReportCell("−1.2"), ReportCell("first", value=1)),
        (ReportCell("ssa 9"), ReportCell(""), ReportCell("", value=None)),
        (ReportCell("SSA", bold=True), ReportCell("0.782", bold=True), ReportCell("second", value=2)),
        (ReportCell("RSD"), ReportCell("diverged"), ReportCell("last", value=float("inf"))),
    ),
    ("Bold: best of its column.",),
)
WIDE = ReportTable(
    "Many columns",
    (*(f"corruption {place}" for place in range(14)), LONG),
    tuple(cells(f"method {row}", *(f"{row}.{place} ± 0.01" for place in range(13)), LONG) for row in range(4)),
)


@pytest.fixture(scope="session")
def pictures(reports: SimpleNamespace) -> tuple[ReportFigure, ...]:  # noqa: F811
    drawn = {
        "spectrum": figures.draw_spectrum(reports.subspace).figure,
        "stream": figures.stream_panels(reports.stream),
        "clouds": figures.cloud_panels(reports.clouds),
        "histograms": figures.histogram_grid(reports.histograms),
        "predictions": figures.draw_predictions(reports.predictions).figure,
        "normality": figures.draw_normality(reports.normality).figure,
    }
    return tuple(
        ReportFigure(f"The {name}", f"what the {name} looks like", f"About the {name}.", figure)
        for name, figure in drawn.items()
    )


@pytest.fixture(scope="session")
def page(pictures: tuple[ReportFigure, ...]) -> Page:
    return Page(
        title=f"A small model on shifted tables, {LONG}",
        headline="SSA predicts the shifted tables better than the model left alone: R² 0.78 instead of 0.41.",
        tone="better",
        summary=("The gain holds for all five source models.", "One batch was refused.", "No labels were used."),
        facts=(("Model", "mlp"), ("Fingerprint", "0123456789abcdef" * 4), (LONG, LONG)),
        warnings=("Few samples for many dimensions.", LONG),
        sections=(
            Section("Scores", ("Offline scores.", LONG), (SCORES, WIDE), pictures[:3]),
            Section("Features", figures=pictures[3:]),
            Section("Nothing but words", ("That is all.",)),
        ),
        command=f"regtta report --model 'a b.py:build' --data {LONG} --out report.html",
    )


@pytest.fixture(scope="session")
def page_text(page: Page) -> str:
    return render_html(page)


@pytest.fixture(scope="session")
def plain_page(page: Page) -> Page:
    """Return the page without figures, which is quick to render."""
    sections = tuple(dataclasses.replace(section, figures=()) for section in page.sections)
    return dataclasses.replace(page, sections=sections)


def attack(place: str) -> str:
    """Return a text, labelled ``place``, that would run or break out of its tag or attribute if it were not escaped."""
    return f"{place} \"'&amp;</script></style></title><script>window.hit='{place}'</script><img src=x onerror=hit=1>"


@pytest.fixture(scope="session")
def hostile_page() -> Page:
    figure = new_figure()
    figure.text(0.1, 0.5, attack("figure"))
    entry = ReportCell(attack("entry"), bold=True, value=attack("value"))
    return Page(
        title=attack("title"),
        headline=attack("headline"),
        tone="worse",
        summary=(attack("summary"),),
        facts=((attack("fact name"), attack("fact value")),),
        warnings=(attack("warning"),),
        sections=(
            Section(
                attack("section"),
                (attack("paragraph"),),
                (
                    ReportTable(
                        attack("grid"), (attack("column"), attack("other")), ((entry, entry),), (attack("note"),)
                    ),
                ),
                (ReportFigure(attack("picture"), attack("alt"), attack("caption"), figure),),
            ),
        ),
        command=attack("command"),
    )


@pytest.fixture(scope="session")
def files(tmp_path_factory, page_text, plain_page, hostile_page) -> dict[str, Path]:
    texts = {"whole": page_text, "hostile": render_html(hostile_page)}
    for tone in ("better", "worse", "undecided", "unknown"):
        texts[tone] = render_html(dataclasses.replace(plain_page, tone=tone))
    folder = tmp_path_factory.mktemp("pages")
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}
