"""Data sets as tensors: their location, their readers, and their split into source and target."""

from regtta_bench.data.biwi import ANGLES, GENDERS, other
from regtta_bench.data.catalogue import DATASETS, DataSet, data_folder
from regtta_bench.data.domains import BINS, Domain, Shift, bin_edges, in_classes
from regtta_bench.data.loading import DISCRETE, LOADERS, Loaded, Place, check_there
from regtta_bench.data.pictures import Pictures, PictureShift, centre_window, colour_jitter, crop_and_flip, normalise

__all__ = [
    "ANGLES",
    "BINS",
    "DATASETS",
    "DISCRETE",
    "GENDERS",
    "LOADERS",
    "DataSet",
    "Domain",
    "Loaded",
    "PictureShift",
    "Pictures",
    "Place",
    "Shift",
    "bin_edges",
    "centre_window",
    "check_there",
    "colour_jitter",
    "crop_and_flip",
    "data_folder",
    "in_classes",
    "normalise",
    "other",
]
