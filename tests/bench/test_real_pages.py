"""Reports of real runs in a browser: the demo at toy size, and the committed reproductions."""

import io
from html import unescape
from pathlib import Path

import pytest
from rich.console import Console

from helpers.page_appearance import assert_readable
from regtta.report import render_html
from regtta.report.run_kinds import build_page
from regtta_bench.demo import DemoRecipe, run_demo
from regtta_bench.demo.demo_data import Contrast, Noise
from regtta_bench.demo.demo_model import DigitTraining

RESULTS = Path(__file__).parents[2] / "results"
TOY = DemoRecipe(
    source_digits=200,
    target_digits=97,
    training=DigitTraining(epochs=1),
    degradations={"noisy": Noise(0.3), "contrast": Contrast(0.15)},
)
MAX_BYTES = 5 * 2**20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    result = run_demo(out=folder, console=Console(file=io.StringIO()), sources=2, recipe=TOY)
    made = folder / "reproduction.html"
    made.write_text(
        render_html(build_page([RESULTS / "california", RESULTS / "svhn-subset"], "regtta report results")),
        encoding="utf-8",
    )
    return {"demo": result.report_path, "reproduction": made}


@pytest.mark.parametrize("name", ["demo", "reproduction"])
@pytest.mark.parametrize(("size", "scheme"), [((1440, 900), "light"), ((390, 844), "dark")], ids=["desktop", "phone"])
def test_a_real_report_is_complete_and_readable(opened, files, name, size, scheme):
    assert files[name].stat().st_size < MAX_BYTES
    with opened(name, size, scheme) as view:
        assert_readable(view)
        assert view.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        bottom = view.evaluate("document.querySelector('h1').getBoundingClientRect().bottom")
        assert bottom < size[1]  # the verdict is on the first screen
        natural = view.evaluate("[...document.querySelectorAll('main img')].map(image => image.naturalWidth)")
        assert len(natural) > 5
        assert min(natural) > 300
        filled = "section => section.querySelector('img, table, p, dl, pre, li') !== null"
        assert view.evaluate(f"[...document.querySelectorAll('section')].every({filled})")


def test_the_demos_report_shows_every_analysis(files):
    text = unescape(files["demo"].read_text())
    for title in (
        "Offline R² on every stream",
        "Means along the source's directions",
        "Reconstruction from source directions",
        "Distribution of predictions",
        "Predictions against labels, adapted",
        "Over the stream",
        "Principal components of the features",
        "Spectrum of the source's features",
        "Variance and weight of each direction",
        "How raw dimensions move the subspace",
        "Distance to a Gaussian",
        "Some dimensions beside their Gaussian",
    ):
        assert title in text, title
    assert "<span>regtta</span> <span>demo</span> <span>--out</span>" in text
