"""The Python in the README and in the docs runs as it stands there."""

import importlib
import re
import runpy
from pathlib import Path

import pytest
import torch

from helpers import small_models

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.S | re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = small_models.mlp()
    names = {
        "model": model,
        "source_loader": small_models.table(300).split(50),
        "stream": small_models.table(60, shift=1.0).split(20),
        "x": small_models.table(8),
        "torch": torch,
    }
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def resolve(dotted):
    """Return the object that a dotted name such as ``regtta.guards.Gate`` names."""
    found = importlib.import_module(dotted.split(".")[0])
    for name in dotted.split(".")[1:]:
        found = getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{found.__name__}.{name}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_and_paths_in_the_text_exist(page):
    text = page.read_text(encoding="utf-8")
    for dotted in re.findall(r"(?<![\w/.-])regtta(?:_bench)?(?:\.[A-Za-z_]\w*)+", text):
        if not dotted.endswith((".prom", ".provenance")):  # a file, and a key in one
            resolve(dotted)
    for path in re.findall(r"(?<![\w/])(?:src|tests|benchmarks|docs|examples)/[\w/]*\w\.(?:py|md)", text):
        assert (ROOT / path).exists() or "yours" in path, f"{page.name} names {path}"


def test_the_readme_shows_the_three_lines():
    text = "\n".join(blocks(ROOT / "README.md", "python"))
    for call in ("regtta.collect(", "regtta.Adapter(", ".adapt("):
        assert call in text


@pytest.mark.parametrize("name", ["methods", "faults", "speed"])
def test_the_made_pages_are_what_they_are_made_from(name):
    maker = runpy.run_path(str(ROOT / "docs" / f"make_{name}.py"))
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == maker["page"](), "run make docs"


def test_the_page_of_models_lists_the_catalogue():
    from helpers.architectures import CATALOGUE  # imports many libraries

    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    maker = runpy.run_path(str(ROOT / "docs" / "make_architectures.py"))
    assert text.startswith(maker["INTRODUCTION"]), "run make architectures"
    rows = [
        [cell.strip() for cell in line.split("|")[1:5]] for line in text[len(maker["INTRODUCTION"]) :].splitlines()[3:]
    ]
    listed = [(family, name, head.strip("`")) for family, name, _, head in rows]
    assert listed == [(entry.family, entry.name, entry.head) for entry in CATALOGUE], "run make architectures"
    assert f"[{len(CATALOGUE)} architectures](docs/models.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
