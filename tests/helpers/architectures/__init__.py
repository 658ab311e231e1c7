"""Catalogue of small models of many kinds, each with random source and target batches.

The tests run every one of them, and ``docs/models.md`` lists them.
"""

from helpers.architectures.catalogue import CATALOGUE
from helpers.architectures.entry import Architecture
from helpers.architectures.pipeline import Outcome, make_adapter, run_pipeline

__all__ = ["CATALOGUE", "Architecture", "Outcome", "make_adapter", "run_pipeline"]
