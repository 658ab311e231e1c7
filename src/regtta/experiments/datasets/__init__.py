"""Data sets as tensors: where they lie, how they are read, and which part is source and which is target."""

from regtta.experiments.datasets.catalogue import DATASETS, DataSet
from regtta.experiments.datasets.domains import Domain, Shift
from regtta.experiments.datasets.location import data_folder
from regtta.experiments.datasets.pictures import Pictures, PictureShift

__all__ = ["DATASETS", "DataSet", "Domain", "PictureShift", "Pictures", "Shift", "data_folder"]
