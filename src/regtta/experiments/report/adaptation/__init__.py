"""The report of ``regtta adapt``: from its record to a page."""

from regtta.experiments.report.adaptation.sections import adaptation_page

__all__ = ["adaptation_page"]
