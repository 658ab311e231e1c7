"""Fixtures that open pages in the Chromium of this machine; tests that use them skip where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, files):
    @contextmanager
    def opened(name="better", size=(1440, 900), scheme="light", *, start="", reduced_motion="reduce", **options):
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion=reduced_motion, **options
        )
        view = context.new_page()
        events: list[str] = []
        view.on("console", lambda message: events.append(message.text))
        view.on("pageerror", lambda error: events.append(str(error)))
        view.on("request", lambda request: events.append(request.url))
        address = files[name].as_uri()
        if start:
            context.add_init_script(start)
        view.goto(address)
        # No console output, no error, and no request except for the file itself (data: URIs are inside it).
        yield view
        assert [text for text in events if not text.startswith("data:")] == [address]
        context.close()

    return opened
