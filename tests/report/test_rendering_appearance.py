"""Appearance of the page in a real browser: contrast, layout on any screen, dark theme and print."""

import json

import pytest

from helpers.page_appearance import assert_readable, contrast, luminance, opaque_channels

SIZES = pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["desktop", "phone"])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


def test_contrast_follows_wcag():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((118, 118, 118), (255, 255, 255)) == pytest.approx(4.54, abs=0.005)


@SCHEMES
@pytest.mark.parametrize("tone", ["better", "worse", "undecided", "unknown"])
def test_all_text_has_sufficient_contrast(opened, tone, scheme):
    with opened(tone, scheme=scheme) as view:
        assert_readable(view)
        background = opaque_channels(view.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert (luminance(background) < 0.1) == (scheme == "dark")
        view.locator("tbody tr").first.hover()
        assert_readable(view)


@SCHEMES
def test_contrast_around_an_open_figure(opened, scheme):
    with opened("whole", scheme=scheme) as view:
        view.locator(".enlarge").first.click()
        assert_readable(view)
        for place in (".paper", ".stage"):
            assert (
                view.locator(place).first.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
            )


@SIZES
def test_the_verdict_is_on_the_first_screen(opened, page, size):
    with opened("whole", size) as view:
        box = view.get_by_role("heading", level=1).bounding_box()
        assert view.get_by_role("heading", level=1).inner_text() == page.headline
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= size[1]


SPILLED = """() => {
  const spilled = [], wide = document.scrollingElement.clientWidth;
  for (const element of document.querySelectorAll("body *")) {
    if (!element.checkVisibility() || element.closest(".unseen, .skip")) continue;
    const box = element.getBoundingClientRect();
    const inTable = element.parentElement.closest(".scroll");
    if (!inTable && (box.left < 0 || box.right > wide + 0.5)) spilled.push([element.outerHTML.slice(0, 80), "page"]);
    for (const node of element.childNodes) {
      if (node.nodeType !== Node.TEXT_NODE || !node.textContent.trim()) continue;
      const text = document.createRange();
      text.selectNodeContents(node);
      const inside = text.getBoundingClientRect();
      if (inside.left < box.left - 0.5 || inside.right > box.right + 0.5 || inside.bottom > box.bottom + 4)
        spilled.push([element.outerHTML.slice(0, 80), "element"]);
    }
  }
  return spilled;
}"""


# True if a cell is painted above the content that has scrolled below it.
COVERS = """(box, name) => {
  const cell = box.querySelector(name);
  cell.scrollIntoView({ block: "center" });
  box.scrollTo(250, 0);
  const { left, right, top, bottom } = cell.getBoundingClientRect();
  return [0.1, 0.5, 0.9].every(part =>
    cell.contains(document.elementFromPoint(left + part * (right - left), (top + 3 * bottom) / 4)));
}"""


@pytest.mark.parametrize("width", [320, 390, 700, 1030, 1440])
def test_nothing_is_clipped_and_only_tables_scroll_sideways(opened, width):
    with opened("whole", (width, 844)) as view:
        assert view.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        assert view.evaluate(SPILLED) == []
        wide = view.locator(".scroll").nth(1)
        assert wide.evaluate("box => box.scrollWidth > box.clientWidth")
        box, last, first = wide.evaluate(
            "box => { box.scrollTo(1e6, 0); const row = box.querySelector('tbody tr');"
            " return [box, row.lastElementChild, row.firstElementChild].map(e => e.getBoundingClientRect().toJSON()); }"
        )
        assert last["right"] <= box["right"]
        assert first["left"] == pytest.approx(box["left"], abs=1.5)  # it stays in sight
        for row in ("thead", "tbody"):
            assert wide.evaluate(COVERS, f"{row} tr > :first-child")


def test_without_javascript_the_page_is_complete(opened, pictures):
    with opened("whole", java_script_enabled=False) as view:
        assert [view.locator("figure img").nth(place).is_visible() for place in range(6)] == [True] * len(pictures)
        assert view.get_by_role("cell", name="0.412 ± 0.031").is_visible()
        assert view.get_by_role("columnheader", name="R² ↑").is_visible()
        assert view.get_by_role("button").count() == 0


def test_reduced_motion_is_respected(opened):
    smooth = "getComputedStyle(document.documentElement).scrollBehavior"
    with opened(reduced_motion="no-preference") as view:
        assert view.evaluate(smooth) == "smooth"
    with opened() as view:
        assert view.evaluate(smooth) == "auto"


def test_printed_pages_are_light_and_complete_without_buttons(opened):
    with opened("whole", (690, 980), "dark") as view:  # about what A4 leaves between its margins
        view.emulate_media(media="print", color_scheme="dark")
        assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert_readable(view)
        for name in ("#theme", ".enlarge", "#copy", "nav"):
            assert not view.locator(name).first.is_visible()
        assert view.locator("thead button").first.is_visible()  # the name of its column
        assert set(
            view.locator("figure, tr, pre").evaluate_all("all => all.map(e => getComputedStyle(e).breakInside)")
        ) == {"avoid"}
        assert view.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        assert max(view.locator("figure").evaluate_all("all => all.map(e => e.offsetHeight)")) < 980


def test_the_theme_is_chosen_and_remembered(opened):
    background = "getComputedStyle(document.body).backgroundColor"
    with opened() as view:
        light = view.evaluate(background)
        view.get_by_role("button", name="Dark colours").click()
        assert luminance(opaque_channels(view.evaluate(background))) < 0.1 < luminance(opaque_channels(light))
        assert json.loads(view.evaluate("JSON.stringify(localStorage)")) == {"regtta-report-theme": "dark"}
        again = view.context.new_page()
        again.goto(view.url)
        assert luminance(opaque_channels(again.evaluate(background))) < 0.1
        again.get_by_role("button", name="Light colours").click()
        assert again.evaluate(background) == light


def test_the_theme_changes_without_storage(opened):
    refuse = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } });"
    with opened(scheme="dark", start=refuse) as view:
        dark = view.evaluate("getComputedStyle(document.body).backgroundColor")
        view.get_by_role("button", name="Light colours").click()
        assert view.evaluate("getComputedStyle(document.body).backgroundColor") != dark
        assert view.get_by_role("button", name="Dark colours").is_visible()
