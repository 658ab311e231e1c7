"""Data sets as tensors: where they lie, how they are read, and which part is source and which is target."""

from regtta.experiments.datasets.domains import Domain, Shift
from regtta.experiments.datasets.location import data_folder

__all__ = ["Domain", "Shift", "data_folder"]
