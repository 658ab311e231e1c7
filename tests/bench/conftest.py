from helpers.browser_fixtures import browser, opened  # noqa: F401
