"""Catalogue of data sets with origin and licence, and the folder they lie in."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from regtta.errors import MissingFileError

DATA_FOLDER_VARIABLE = "REGTTA_DATA"


def resolve_data_folder(given: str | Path | None = None) -> Path:
    """Return the folder of the data sets: ``given``, or the value of ``REGTTA_DATA``."""
    chosen = given or os.environ.get(DATA_FOLDER_VARIABLE)
    if not chosen:
        raise MissingFileError(f"No folder of data sets was given. Pass one, or set {DATA_FOLDER_VARIABLE} to it.")
    folder = Path(chosen)
    if not folder.is_dir():
        raise MissingFileError(f"There is no folder {folder} of data sets. Create it, or pass another.")
    return folder


def find_file(folder: Path, name: str, candidates: tuple[str, ...] = ()) -> Path:
    """Return the first existing file of a data set; raise an error that says how to get it if there is none.

    Args:
        folder: folder of the data sets.
        name: name of the data set in ``DATASETS``.
        candidates: paths inside ``folder``, the recommended one first; the data set's paths by default.
    """
    candidates = candidates or DATASETS[name].paths
    for candidate in candidates:
        if (folder / candidate).is_file():
            return folder / candidate
    raise missing_dataset_error(name, folder, folder / candidates[0])


def find_path(folder: Path, name: str) -> Path:
    """Return the first of a data set's paths that exists in ``folder``, a file or a folder; raise if there is none."""
    paths = DATASETS[name].paths
    for path in paths:
        if (folder / path).exists():
            return folder / path
    raise missing_dataset_error(name, folder, folder / paths[0])


@dataclass(frozen=True)
class DataSet:
    """Entry of a data set, with the texts for error messages.

    Attributes:
        title: name of the data set, as it begins a sentence.
        origin: source to download it from.
        terms: terms of use.
        paths: paths inside the folder of data sets where it is searched, the recommended one first.
        remedy: alternative to getting the files by hand, as a sentence; may be empty.
    """

    title: str
    origin: str
    terms: str
    paths: tuple[str, ...]
    remedy: str = ""


_DOWNLOAD = "Or pass download=True; on the command line, --download."

DATASETS: Mapping[str, DataSet] = MappingProxyType(
    {
        "california": DataSet(
            title="California Housing",
            origin="Kaggle, camnugent/california-housing-prices (housing.csv)",
            terms="public domain",
            paths=("california_housing/housing.csv.gz", "california_housing/housing.csv", "housing.csv"),
            remedy="Or call download_california on that folder; on the command line, --download.",
        ),
        "mnist": DataSet(
            title="MNIST",
            origin="torchvision.datasets.MNIST(root, download=True)",
            terms="none stated",
            paths=("MNIST/raw",),
            remedy=_DOWNLOAD,
        ),
        "mnist-test": DataSet(
            title="MNIST's test split",
            origin="torchvision.datasets.MNIST(root, download=True)",
            terms="none stated",
            paths=("mnist", "MNIST/raw"),
        ),
        "svhn": DataSet(
            title="SVHN",
            origin="http://ufldl.stanford.edu/housenumbers (train_32x32.mat and test_32x32.mat, cropped digits)",
            terms="non-commercial use only",
            paths=("svhn",),
            remedy=_DOWNLOAD,
        ),
        "svhn-subset": DataSet(
            title="The subset of SVHN",
            origin="the first digits of SVHN's cropped test and train splits, as arrays x (N, 32, 32, 3) and y (N,)",
            terms="non-commercial use only",
            paths=("svhn/svhn_test_first10000_32x32.npz", "svhn/svhn_train_first1083_32x32.npz"),
        ),
        "cifar10": DataSet(
            title="CIFAR-10",
            origin="https://www.cs.toronto.edu/~kriz/cifar.html (cifar-10-python.tar.gz, unpacked)",
            terms="none stated; the authors ask to be cited",
            paths=("cifar-10-batches-py",),
            remedy=_DOWNLOAD,
        ),
        "cifar10c": DataSet(
            title="CIFAR-10-C",
            origin="https://zenodo.org/records/2535967 (CIFAR-10-C.tar, unpacked)",
            terms="CC BY 4.0",
            paths=("CIFAR-10-C",),
            remedy="Or pass make=<callable(images, name, severity)> to make it from CIFAR-10's test split.",
        ),
        "utkface": DataSet(
            title="UTKFace",
            origin="https://susanqq.github.io/UTKFace (the aligned and cropped faces, unpacked)",
            terms="non-commercial research only",
            paths=("UTKFace", "utkface/UTKFace", "utkface"),
        ),
        "bike": DataSet(
            title="UCI bike sharing",
            origin="https://archive.ics.uci.edu/dataset/275/bike+sharing+dataset (hour.csv)",
            terms="CC BY 4.0",
            paths=("bike_sharing/hour.csv", "bike_sharing/hour.csv.gz"),
        ),
        "wine": DataSet(
            title="UCI wine quality",
            origin="https://archive.ics.uci.edu/dataset/186/wine+quality (winequality-red.csv, winequality-white.csv)",
            terms="CC BY 4.0",
            paths=("wine_quality/winequality-red.csv", "wine_quality/winequality-white.csv"),
        ),
        "pm25": DataSet(
            title="UCI Beijing multi-site air quality",
            origin="https://archive.ics.uci.edu/dataset/501/beijing+multi+site+air+quality+data (the files of "
            "Dongsi and Huairou)",
            terms="CC BY 4.0",
            paths=(
                "beijing_air/PRSA_Data_Dongsi_20130301-20170228.csv",
                "beijing_air/PRSA_Data_Huairou_20130301-20170228.csv",
            ),
        ),
        "cmapss": DataSet(
            title="NASA C-MAPSS",
            origin="https://data.nasa.gov, CMAPSS Jet Engine Simulated Data (train_FD001.txt, test_FD003.txt and "
            "RUL_FD003.txt)",
            terms="public domain",
            paths=("cmapss/train_FD001.txt", "cmapss/test_FD003.txt", "cmapss/RUL_FD003.txt"),
        ),
        "biwi": DataSet(
            title="Biwi Kinect",
            origin="Kaggle, kmader/biwi-kinect-head-pose-database (faces_0, as a folder or in a tar)",
            terms="non-commercial use only, CC BY-NC-ND 4.0",
            paths=(
                *("biwi/faces_0", "biwi/faces_0.tar", "biwi/faces_0.tar.gz", "biwi/faces_0.tgz"),
                *("faces_0", "faces_0.tar", "faces_0.tar.gz", "faces_0.tgz"),
            ),
        ),
    }
)


def missing_dataset_error(name: str, folder: object, destination: object, *, found: str = "") -> MissingFileError:
    """Return the error for a missing data set, which says where to get it, its terms and where to put it.

    Args:
        name: name of the data set in ``DATASETS``.
        folder: folder that was searched.
        destination: path to put the data set at.
        found: description of the problem, if the data set is incomplete.
    """
    entry = DATASETS[name]
    wrong = found or f"{entry.title} is not in {folder}."
    advice = f"Get it from {entry.origin} (terms: {entry.terms}) and put it at {destination}. {entry.remedy}"
    return MissingFileError(f"{wrong} {advice}".rstrip())
