"""Behaviour of the page in a real browser: sorting, enlarging figures, copying the command, and security."""

import pytest

SIZES = pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["desktop", "phone"])


def shown_rows(view, table=0):
    return view.evaluate(
        "place => [...document.querySelectorAll('table')[place].tBodies[0].rows].map(row => row.cells[0].textContent)",
        table,
    )


def sort_states(view, table=0):
    return view.evaluate(
        "place => [...document.querySelectorAll('table')[place].tHead.rows[0].cells].map(cell => cell.ariaSort)", table
    )


AS_WRITTEN = ["Source", "ssa 10", "ssa 9", "SSA", "RSD"]
BY_SCORE = ["ssa 10", "Source", "SSA", "RSD", "ssa 9"]  # −1.2, 0.412, 0.782, "diverged", empty
BY_SCORE_FALLING = ["RSD", "SSA", "Source", "ssa 10", "ssa 9"]  # empty is last again


@pytest.mark.parametrize("press", ["click", "Enter", "Space"])
def test_tables_sort_both_ways_by_click_and_by_key(opened, press):
    with opened() as view:
        assert shown_rows(view) == AS_WRITTEN
        head = view.get_by_role("button", name="R² ↑")
        orders = []
        for _ in range(3):
            head.click() if press == "click" else head.press(press)
            orders.append((shown_rows(view), sort_states(view), view.locator("#status").text_content()))
        assert orders == [
            (BY_SCORE, ["none", "ascending", "none"], "Sorted by R² ↑, ascending."),
            (BY_SCORE_FALLING, ["none", "descending", "none"], "Sorted by R² ↑, descending."),
            (AS_WRITTEN, ["none", "none", "none"], "Rows as they were written."),
        ]
        assert shown_rows(view, 1) == [f"method {row}" for row in range(4)]


def test_values_sort_before_texts_and_leading_numbers_count(opened):
    with opened() as view:
        view.get_by_role("button", name="rank").click()
        assert shown_rows(view) == ["ssa 10", "SSA", "Source", "RSD", "ssa 9"]  # 1, 2, 3, infinity, empty
        view.get_by_role("button", name="method").first.click()
        assert shown_rows(view) == ["RSD", "Source", "SSA", "ssa 9", "ssa 10"]
        assert sort_states(view) == ["ascending", "none", "none"]


def test_the_keyboard_reaches_column_headers_in_order(opened):
    with opened() as view:
        view.get_by_role("button", name="method").first.focus()
        view.keyboard.press("Tab")
        assert view.evaluate("document.activeElement.textContent") == "R² ↑"
        assert view.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_every_figure_has_its_size_texts_and_caption(opened, page, pictures):
    with opened("whole") as view:
        images = view.evaluate(
            """() => [...document.querySelectorAll("figure img")].map(image => ({
                 natural: [image.naturalWidth, image.naturalHeight],
                 said: [Number(image.getAttribute("width")), Number(image.getAttribute("height"))],
                 seen: [image.clientWidth, image.clientHeight], alt: image.alt,
                 caption: image.closest("figure").querySelector("figcaption").innerText }))"""
        )
        assert [image["alt"] for image in images] == [picture.alt for picture in pictures]
        assert [image["caption"] for image in images] == [picture.caption for picture in pictures]
        for image in images:
            assert min(image["natural"]) > 0
            assert image["natural"] == pytest.approx([2 * side for side in image["said"]], abs=1)
            assert image["seen"][0] / image["seen"][1] == pytest.approx(image["said"][0] / image["said"][1], rel=0.01)


@SIZES
def test_a_figure_opens_large_and_closes_and_the_focus_returns(opened, size):
    with opened("whole", size) as view:
        dialog, button = view.locator("#zoom"), view.locator(".enlarge").nth(1)
        focused = "document.activeElement === document.querySelectorAll('.enlarge')[1]"
        on_page = view.locator("figure img").nth(1).bounding_box()["width"]
        for start, end in (("Enter", "Escape"), ("click", "close"), ("picture", "beside"), ("Space", "Escape")):
            assert not dialog.is_visible()
            if start == "picture":
                view.locator("figure img").nth(1).click()
            else:
                button.click() if start == "click" else button.press(start)
            assert dialog.is_visible()
            assert view.locator("#zoom-title").text_content() == "The stream"
            assert dialog.locator("img").get_attribute("alt") == "what the stream looks like"
            assert dialog.locator("img").bounding_box()["width"] > 1.2 * on_page
            box = dialog.bounding_box()
            assert (box["x"] >= 0, box["x"] + box["width"] <= size[0], box["height"] <= size[1]) == (True,) * 3
            if end == "Escape":
                view.keyboard.press("Escape")
            elif end == "close":
                view.get_by_role("button", name="Close").click()
            else:
                view.mouse.click(1, 1)
            assert not dialog.is_visible()
            assert view.evaluate(focused)


def test_a_hostile_page_runs_nothing(opened):
    with opened("hostile") as view:
        assert view.evaluate("window.hit") is None
        view.locator("thead button").first.click()
        view.locator(".enlarge").click()
        assert view.evaluate("[window.hit, document.scripts.length]") == [None, 1]
        assert view.locator("#zoom-title").text_content().startswith("picture \"'&amp;</script>")


@pytest.mark.parametrize(
    ("attempt", "directive"),
    [
        ("new Image().src = 'http://127.0.0.1:9/a.png'", "img-src"),
        ("fetch('http://127.0.0.1:9/').catch(() => 0)", "connect-src"),
        ("const s = document.createElement('script'); s.text = 'hit = 1'; document.body.append(s)", "script-src-elem"),
        ("document.body.setAttribute('style', 'color: red')", "style-src-attr"),
    ],
)  # fmt: skip
def test_the_browser_blocks_external_resources(browser, files, attempt, directive):
    view = browser.new_page()
    view.goto(files["better"].as_uri())
    refused = view.evaluate(
        "() => new Promise(done => { document.addEventListener('securitypolicyviolation', "
        f"event => done(event.effectiveDirective), {{ once: true }}); {attempt}; }})"
    )
    assert refused == directive
    assert view.evaluate("window.hit") is None
    view.close()


def test_the_command_is_copied_verbatim(opened, page):
    with opened(permissions=["clipboard-read", "clipboard-write"]) as view:
        view.get_by_role("button", name="Copy the command").click()
        view.get_by_role("button", name="Copied").wait_for()
        assert view.evaluate("navigator.clipboard.readText()") == page.command


def test_the_command_is_selected_if_copying_is_denied(opened, page):
    refuse = "navigator.clipboard.writeText = () => Promise.reject(new Error('refused'));"
    with opened(start=refuse) as view:
        view.get_by_role("button", name="Copy the command").click()
        view.get_by_role("button", name="Selected: copy it with Ctrl+C").wait_for()
        assert view.evaluate("getSelection().toString()") == page.command


def test_the_skip_link_is_the_first_stop_and_leads_to_the_report(opened):
    with opened() as view:
        view.keyboard.press("Tab")
        assert view.evaluate("document.activeElement.className") == "skip"
        assert view.locator(".skip").bounding_box()["y"] >= 0
        view.keyboard.press("Enter")
        assert view.evaluate("document.activeElement.id") == "report"
