"""Data sets as tensors: their location, their readers, and their split into source and target."""

from regtta.experiments.datasets.catalogue import DATASETS, DataSet
from regtta.experiments.datasets.domains import Domain, Shift
from regtta.experiments.datasets.location import data_folder
from regtta.experiments.datasets.pictures import Pictures, PictureShift

__all__ = ["DATASETS", "DataSet", "Domain", "PictureShift", "Pictures", "Shift", "data_folder"]
