from helpers.cli_fixtures import refusal, regtta, statistics, workspace  # noqa: F401
