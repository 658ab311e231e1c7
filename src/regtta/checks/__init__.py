"""Checks before a stream: whether a model, a batch and source statistics fit a method, and what a step will cost."""

from regtta.checks.result import CheckResult, Finding
from regtta.checks.run_checks import check

__all__ = ["CheckResult", "Finding", "check"]
