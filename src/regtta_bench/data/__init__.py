"""Data sets as tensors: their location, their readers, and their split into source and target."""

from regtta_bench.data.biwi import ANGLES, GENDERS, other_gender
from regtta_bench.data.catalogue import DATASETS, DataSet, resolve_data_folder
from regtta_bench.data.domains import DEFAULT_BINS, Domain, ShiftedDataset, bin_edges, discretise
from regtta_bench.data.loading import DISCRETE_LABELS, LOADERS, DataLocation, LoadedDataset, check_available
from regtta_bench.data.pictures import Pictures, ShiftedPictures, centre_crop, colour_jitter, crop_and_flip, normalise
from regtta_bench.data.sensor_faults import SENSOR_FAULTS, SensorFault
from regtta_bench.data.table_shifts import TABLE_DOMAINS

__all__ = [
    "ANGLES",
    "DATASETS",
    "DEFAULT_BINS",
    "DISCRETE_LABELS",
    "GENDERS",
    "LOADERS",
    "SENSOR_FAULTS",
    "TABLE_DOMAINS",
    "DataLocation",
    "DataSet",
    "Domain",
    "LoadedDataset",
    "Pictures",
    "SensorFault",
    "ShiftedDataset",
    "ShiftedPictures",
    "bin_edges",
    "centre_crop",
    "check_available",
    "colour_jitter",
    "crop_and_flip",
    "discretise",
    "normalise",
    "other_gender",
    "resolve_data_folder",
]
