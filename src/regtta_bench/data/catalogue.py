"""Catalogue of data sets with origin and licence, and the folder they lie in."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from regtta.errors import MissingFileError

VARIABLE = "REGTTA_DATA"


def data_folder(given: str | Path | None = None) -> Path:
    """Return the folder of the data sets: ``given``, or the value of ``REGTTA_DATA``."""
    named = given or os.environ.get(VARIABLE)
    if not named:
        raise MissingFileError(f"No folder of data sets was given. Pass one, or set {VARIABLE} to it.")
    folder = Path(named)
    if not folder.is_dir():
        raise MissingFileError(f"There is no folder {folder} of data sets. Create it, or pass another.")
    return folder


def find_file(folder: Path, name: str, candidates: tuple[str, ...] = ()) -> Path:
    """Return the first existing file of a data set; raise an error that says how to get it if there is none.

    Args:
        folder: folder of the data sets.
        name: name of the data set in ``DATASETS``.
        candidates: paths inside ``folder``, the recommended one first; the data set's places by default.
    """
    candidates = candidates or DATASETS[name].places
    for candidate in candidates:
        if (folder / candidate).is_file():
            return folder / candidate
    raise missing(name, folder, folder / candidates[0])


def find_place(folder: Path, name: str) -> Path:
    """Return the first of a data set's places that exists in ``folder``, a file or a folder; raise if there is none."""
    places = DATASETS[name].places
    for place in places:
        if (folder / place).exists():
            return folder / place
    raise missing(name, folder, folder / places[0])


@dataclass(frozen=True)
class DataSet:
    """Entry of a data set, with the texts for error messages.

    Attributes:
        what: name of the data set, as it begins a sentence.
        origin: where to get it.
        terms: terms of use.
        places: paths inside the folder of data sets where it is searched, the recommended one first.
        remedy: alternative to getting the files by hand, as a sentence; may be empty.
    """

    what: str
    origin: str
    terms: str
    places: tuple[str, ...]
    remedy: str = ""


_DOWNLOAD = "Or pass download=True; on the command line, --download."

DATASETS: Mapping[str, DataSet] = MappingProxyType(
    {
        "california": DataSet(
            what="California Housing",
            origin="Kaggle, camnugent/california-housing-prices (housing.csv)",
            terms="public domain",
            places=("california_housing/housing.csv.gz", "california_housing/housing.csv", "housing.csv"),
            remedy="Or call fetch_california on that folder; on the command line, --download.",
        ),
        "mnist": DataSet(
            what="MNIST",
            origin="torchvision.datasets.MNIST(root, download=True)",
            terms="none stated",
            places=("MNIST/raw",),
            remedy=_DOWNLOAD,
        ),
        "mnist-test": DataSet(
            what="MNIST's test split",
            origin="torchvision.datasets.MNIST(root, download=True)",
            terms="none stated",
            places=("mnist", "MNIST/raw"),
        ),
        "svhn": DataSet(
            what="SVHN",
            origin="http://ufldl.stanford.edu/housenumbers (train_32x32.mat and test_32x32.mat, cropped digits)",
            terms="non-commercial use only",
            places=("svhn",),
            remedy=_DOWNLOAD,
        ),
        "svhn-subset": DataSet(
            what="The subset of SVHN",
            origin="the first digits of SVHN's cropped test and train splits, as arrays x (N, 32, 32, 3) and y (N,)",
            terms="non-commercial use only",
            places=("svhn/svhn_test_first10000_32x32.npz", "svhn/svhn_train_first1083_32x32.npz"),
        ),
        "cifar10": DataSet(
            what="CIFAR-10",
            origin="https://www.cs.toronto.edu/~kriz/cifar.html (cifar-10-python.tar.gz, unpacked)",
            terms="none stated; the authors ask to be cited",
            places=("cifar-10-batches-py",),
            remedy=_DOWNLOAD,
        ),
        "cifar10c": DataSet(
            what="CIFAR-10-C",
            origin="https://zenodo.org/records/2535967 (CIFAR-10-C.tar, unpacked)",
            terms="CC BY 4.0",
            places=("CIFAR-10-C",),
            remedy="Or pass make=<callable(images, name, severity)> to make it from CIFAR-10's test split.",
        ),
        "utkface": DataSet(
            what="UTKFace",
            origin="https://susanqq.github.io/UTKFace (the aligned and cropped faces, unpacked)",
            terms="non-commercial research only",
            places=("UTKFace", "utkface/UTKFace", "utkface"),
        ),
        "biwi": DataSet(
            what="Biwi Kinect",
            origin="Kaggle, kmader/biwi-kinect-head-pose-database (faces_0, as a folder or in a tar)",
            terms="non-commercial use only, CC BY-NC-ND 4.0",
            places=(
                *("biwi/faces_0", "biwi/faces_0.tar", "biwi/faces_0.tar.gz", "biwi/faces_0.tgz"),
                *("faces_0", "faces_0.tar", "faces_0.tar.gz", "faces_0.tgz"),
            ),
        ),
    }
)


def missing(name: str, folder: object, place: object, *, found: str = "") -> MissingFileError:
    """Return the error for a missing data set, which says where to get it, its terms and where to put it.

    Args:
        name: name of the data set in ``DATASETS``.
        folder: folder that was searched.
        place: where to put the data set.
        found: what is wrong, if the data set is there in part.
    """
    entry = DATASETS[name]
    wrong = found or f"{entry.what} is not in {folder}."
    return MissingFileError(
        f"{wrong} Get it from {entry.origin} (terms: {entry.terms}) and put it at {place}. {entry.remedy}".rstrip()
    )
