from helpers.report_fixtures import reports  # noqa: F401
