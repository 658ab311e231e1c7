import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise

import pytest

from regtta.errors import ExistingFileError, MissingFileError, OptionError
from regtta.report import Page, ReportCell, ReportFigure, ReportTable, Section, figures, render_html, write_page
from regtta.report.rendering import TONE_LABELS

VOID = {"meta", "link", "img", "br"}


class Tree(HTMLParser):
    """Parser of a page into its elements in order, with attributes and text; unclosed tags are errors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[tuple[str, int]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        if tag not in VOID:
            self._open.append((tag, len(self.texts) - 1))

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, data):
        for _, place in self._open:
            self.texts[place] += data

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [
            (attributes, text)
            for (name, attributes), text in zip(self.elements, self.texts, strict=True)
            if name == tag
        ]


@pytest.fixture(scope="module")
def tree(page_text):
    return Tree(page_text)


@pytest.fixture(scope="module")
def hostile_tree(hostile_page):
    return Tree(render_html(hostile_page))


def test_the_verdict_is_the_first_heading_and_the_first_thing_in_main(page, tree):
    assert tree.all("h1") == [({"id": "headline"}, page.headline)]
    names = [name for name, _ in tree.elements]
    main = names.index("main")
    assert names[main + 1 : main + 5] == ["section", "p", "span", "h1"]
    assert tree.all("title")[0][1] == page.title
    assert tree.all("html")[0][0]["lang"] == "en"


@pytest.mark.parametrize("tone", ["better", "worse", "undecided", "unknown"])
def test_a_tone_is_a_word_and_a_sign_too(plain_page, tone):
    tree = Tree(render_html(dataclasses.replace(plain_page, tone=tone)))
    (mark,) = [text for attributes, text in tree.all("p") if attributes.get("class") == "mark"]
    assert mark == "".join(TONE_LABELS[tone])
    assert tone in mark.lower()
    assert len({sign for sign, _ in TONE_LABELS.values()}) == len(TONE_LABELS)


def test_an_unknown_tone_is_rejected(plain_page):
    with pytest.raises(OptionError, match="Did you mean 'better'"):
        dataclasses.replace(plain_page, tone="beter")


def test_headings_go_down_one_level_at_a_time(tree):
    levels = [int(name[1]) for name, _ in tree.elements if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(text.strip() for level in ("h1", "h2", "h3") for _, text in tree.all(level))


def test_ids_are_unique_and_references_resolve(tree):
    names = [attributes["id"] for _, attributes in tree.elements if "id" in attributes]
    assert len(names) == len(set(names))
    pointed = {attributes["aria-labelledby"] for _, attributes in tree.elements if "aria-labelledby" in attributes}
    pointed |= {(attributes["href"] or "").removeprefix("#") for attributes, _ in tree.all("a")}
    assert pointed <= set(names)


def test_the_navigation_leads_to_every_section(page, tree):
    linked = [text for attributes, text in tree.all("a") if attributes.get("class") != "skip"]
    assert linked == ["Set-up", *(section.title for section in page.sections), "Reproduce this report"]
    assert len(tree.all("nav")) == len(tree.all("main")) == len(tree.all("header")) == 1


def test_all_content_is_rendered(page, tree):
    said = [text for _, text in tree.all("p")] + [text for _, text in tree.all("li")]
    for sentence in (
        *page.summary,
        *page.warnings,
        page.title,
        *page.sections[0].paragraphs,
        "Bold: best of its column.",
    ):
        assert sentence in said
    pairs = zip(tree.all("dt"), tree.all("dd"), strict=True)
    assert tuple((name, value) for (_, name), (_, value) in pairs) == page.facts
    assert tree.all("code")[0][1] == page.command


def test_a_table_has_column_and_row_headers(page, tree):
    grid = page.sections[0].tables[0]
    heads = [(attributes["scope"], text) for attributes, text in tree.all("th")]
    assert heads[:3] == [("col", name) for name in grid.columns]
    assert heads[3:8] == [("row", row[0].text) for row in grid.rows]
    assert [text for _, text in tree.all("td")][:4] == ["0.412 ± 0.031", "third", "−1.2", "first"]
    assert [text for _, text in tree.all("strong")] == ["SSA", "0.782"]
    assert [attributes["class"] for attributes, _ in tree.all("table")] == ["few", "many"]


def test_empty_parts_are_omitted():
    tree = Tree(render_html(Page("run", "It is unknown.", "unknown", (), (), (), (Section("Empty"),), "regtta report")))
    assert [text for _, text in tree.all("h2")] == ["Empty", "Reproduce this report"]
    assert not tree.all("dl") + tree.all("table") + tree.all("figure") + tree.all("ul")


def test_user_text_is_escaped(hostile_page, hostile_tree):
    assert len(hostile_tree.all("script")) == len(hostile_tree.all("style")) == len(hostile_tree.all("title")) == 1
    assert [attributes["src"][:10] for attributes, _ in hostile_tree.all("img") if "src" in attributes] == [
        "data:image"
    ]
    assert not [name for _, attributes in hostile_tree.elements for name in attributes if name.startswith("on")]
    section = hostile_page.sections[0]
    picture, grid = section.figures[0], section.tables[0]
    texts = set(hostile_tree.texts)
    for wrote in (
        *(hostile_page.title, hostile_page.headline, hostile_page.command),
        *(*hostile_page.summary, *hostile_page.facts[0], *hostile_page.warnings),
        *(section.title, *section.paragraphs, picture.title, picture.caption),
        *(grid.title, *grid.columns, *grid.notes, grid.rows[0][0].text),
    ):
        assert wrote in texts
    attributes = {value for _, attributes in hostile_tree.elements for value in attributes.values()}
    assert {picture.alt, grid.rows[0][0].value, f"Enlarge: {picture.title}"} <= attributes


def test_no_template_turns_escaping_off():
    templates = list((resources.files("regtta.report") / "templates").iterdir())
    assert sorted(path.name for path in templates) == [
        "behaviour.js", "figure.html.j2", "page.html.j2", "style.css", "table.html.j2",
    ]  # fmt: skip
    for path in templates:
        if path.name.endswith(".j2"):
            assert not re.search(r"\|\s*safe\b|autoescape", path.read_text(encoding="utf-8"))


def test_the_policy_allows_the_page_itself_and_nothing_else(tree):
    (policy,) = [a["content"] for a, _ in tree.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag in ("style", "script"):
        ((_, inside),) = tree.all(tag)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert not [attributes for _, attributes in tree.elements if "style" in attributes]


def test_the_file_is_self_contained(tree):
    addresses = [value for _, a in tree.elements for name, value in a.items() if name in ("src", "href", "srcset")]
    assert {address.split(",")[0].split(";")[0].split("section")[0] for address in addresses} <= {
        "data:image/png", "data:", "#report", "#facts", "#", "#again",
    }  # fmt: skip
    assert not re.search(r"url\(|@import|https?:", tree.all("style")[0][1] + tree.all("script")[0][1])


def test_the_same_page_gives_the_same_text(reports):
    # The layout of this figure still changes after the first drawing.
    picture = ReportFigure("Stream", "lines", "", figures.stream_panels(reports.stream))
    page = Page("run", "It is unknown.", "unknown", (), (), (), (Section("One", figures=(picture,)),), "regtta report")
    assert render_html(page) == render_html(page)


def test_thirty_figures_stay_below_three_megabytes(page, pictures, page_text):
    shown = sum(len(section.figures) for section in page.sections)
    assert shown == len(pictures) == 6
    assert len(page_text.encode()) / shown * 30 < 3e6


def test_unprintable_characters_are_replaced(plain_page):
    text = render_html(dataclasses.replace(plain_page, headline="a\x00b\udcffc\x1bd", command="one\r\ntwo\udc80"))
    tree = Tree(text)
    assert tree.all("h1")[0][1] == "a\ufffdb\ufffdc\ufffdd"
    assert tree.all("code")[0][1] == "one\ntwo\ufffd"
    text.encode()


def test_existing_pages_are_kept_without_overwrite(tmp_path, plain_page):
    path = tmp_path / "report.html"
    path.write_text("mine")
    with pytest.raises(ExistingFileError, match="overwrite=True"):
        write_page(plain_page, path)
    assert path.read_text() == "mine"
    assert write_page(plain_page, str(path), overwrite=True) == path
    assert path.read_bytes() == render_html(plain_page).encode()
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(MissingFileError, match="no folder"):
        write_page(plain_page, tmp_path / "nowhere" / "report.html")


def test_a_row_of_the_wrong_length_is_rejected():
    with pytest.raises(OptionError, match="Expected 2 cells .* 'Scores', found 1 in row 1"):
        ReportTable("Scores", ("a", "b"), ((ReportCell("1"), ReportCell("2")), (ReportCell("1"),)))
