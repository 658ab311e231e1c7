"""Writers of small files in the layout of the published data sets, with their checksums registered in torchvision."""

import gzip
import hashlib
import json
import pickle

import numpy as np
import pandas as pd
import scipy.io
from PIL import Image
from scipy.spatial.transform import Rotation
from torchvision import datasets

from regtta_bench.data.tabular_sets import AIR_INPUTS, BIKE_INPUTS

CALIFORNIA_COLUMNS = (
    "longitude",
    "latitude",
    "housing_median_age",
    "total_rooms",
    "total_bedrooms",
    "population",
    "households",
    "median_income",
    "median_house_value",
)


def md5(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def write_svhn(folder, monkeypatch, counts=(6, 4)):
    """Write ``counts`` training and test digits, labelled 10 for 0 as published; return (N, 32, 32, 3) by split."""
    rng = np.random.default_rng(0)
    (folder / "svhn").mkdir()
    images, entries = {}, {}
    for split, count in zip(("train", "test"), counts, strict=True):
        images[split] = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        path = folder / "svhn" / f"{split}_32x32.mat"
        labels = (np.arange(1, count + 1, dtype=np.uint8) % 10)[:, None]
        labels[0] = 10
        scipy.io.savemat(path, {"X": images[split].transpose(1, 2, 3, 0), "y": labels}, do_compression=True)
        entries[split] = ["http://127.0.0.1:9/none", path.name, md5(path)]
    monkeypatch.setattr(datasets.SVHN, "split_list", entries)
    return images


def write_cifar10(folder, monkeypatch):
    """Write ten images per batch; return those of the test split (10, 32, 32, 3)."""
    rng = np.random.default_rng(0)
    place = folder / "cifar-10-batches-py"
    place.mkdir()
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for name in names:
        data = rng.integers(0, 256, (10, 3072), dtype=np.uint8)
        (place / name).write_bytes(pickle.dumps({"data": data, "labels": list(range(10))}))
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(number) for number in range(10)]}))
    sums = [[name, md5(place / name)] for name in names]
    monkeypatch.setattr(datasets.CIFAR10, "train_list", sums[:5])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", sums[5:])
    meta = {"filename": "batches.meta", "key": "label_names", "md5": md5(place / "batches.meta")}
    monkeypatch.setattr(datasets.CIFAR10, "meta", meta)
    return data.reshape(10, 3, 32, 32).transpose(0, 2, 3, 1)


def write_mnist(folder, counts=(7, 5)):
    """Write ``counts`` training and test digits; return images (N, 28, 28) by split."""
    rng = np.random.default_rng(0)
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images = {}
    for part, count in zip(("train", "t10k"), counts, strict=True):
        images[part] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(2051, images[part]))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(2049, np.arange(count, dtype=np.uint8) % 10))
    return images


def idx(magic, values):
    """Return ``values`` in MNIST's idx format."""
    shape = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return magic.to_bytes(4, "big") + shape + values.astype(np.uint8).tobytes()


def write_subset(folder, counts=(6, 4), digits=(7, 2, 1, 0, 4)):
    """Write ``counts`` training and held-out digits of SVHN's subset, and ``digits`` of MNIST's test split."""
    rng = np.random.default_rng(0)
    (folder / "mnist").mkdir()
    (folder / "svhn").mkdir(exist_ok=True)
    images = rng.integers(0, 256, (len(digits), 28, 28))
    (folder / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(2051, images)))
    (folder / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(2049, np.array(digits))))
    for name, count in zip(("svhn_test_first10000", "svhn_train_first1083"), counts, strict=True):
        x = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        np.savez(folder / "svhn" / f"{name}_32x32.npz", x=x, y=np.arange(count) % 10)


def write_california(folder, rows=60):
    """Write a table with a third of its rows near the bay, and two rows with missing values."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(3, 2, (rows, 9)), columns=list(CALIFORNIA_COLUMNS))
    table["ocean_proximity"] = (["INLAND", "NEAR BAY", "<1H OCEAN"] * rows)[:rows]
    table.loc[[0, 1], "total_bedrooms"] = np.nan
    (folder / "california_housing").mkdir()
    table.to_csv(folder / "california_housing" / "housing.csv.gz", index=False)


def write_tables(folder, rows=60):
    """Write bicycles, wine, air quality and turbofans with ``rows`` rows per domain, as published."""
    rng = np.random.default_rng(0)
    for name in ("bike_sharing", "wine_quality", "beijing_air", "cmapss"):
        (folder / name).mkdir()
    hours = pd.DataFrame(rng.normal(3, 2, (2 * rows, 11)), columns=list(BIKE_INPUTS))
    hours["yr"], hours["cnt"] = np.arange(2 * rows) // rows, rng.integers(1, 900, 2 * rows)
    hours.to_csv(folder / "bike_sharing" / "hour.csv", index=False)
    for colour in ("red", "white"):
        wines = pd.DataFrame(rng.normal(3, 2, (rows, 11)), columns=[f"chemical {number}" for number in range(11)])
        wines["quality"] = rng.integers(3, 9, rows)
        wines.to_csv(folder / "wine_quality" / f"winequality-{colour}.csv", index=False, sep=";")
    for site in ("Dongsi", "Huairou"):
        air = pd.DataFrame(rng.normal(3, 2, (2 * rows, 11)), columns=list(AIR_INPUTS))
        air["No"], air["month"] = np.arange(1, 2 * rows + 1), np.where(np.arange(2 * rows) % 2, 1, 6)
        air["PM2.5"] = rng.integers(3, 300, 2 * rows).astype(float)
        air.loc[0, "PM2.5"] = np.nan
        air.to_csv(folder / "beijing_air" / f"PRSA_Data_{site}_20130301-20170228.csv.gz", index=False)
    for name in ("train_FD001", "test_FD003"):
        cycles = np.column_stack(
            [np.repeat([1, 2], rows // 2), np.tile(np.arange(1, rows // 2 + 1), 2), rng.normal(3, 2, (rows, 5))]
        )
        cycles[:, 3] = 100.0  # constant, as some of the published columns
        np.savetxt(folder / "cmapss" / f"{name}.txt", cycles)
    np.savetxt(folder / "cmapss" / "RUL_FD003.txt", [10, 20])


def write_utkface(folder, names):
    """Write a face of noise for each name."""
    rng = np.random.default_rng(0)
    faces = folder / "UTKFace"
    faces.mkdir()
    for name in names:
        Image.fromarray(rng.integers(0, 256, (200, 200, 3), dtype=np.uint8)).save(faces / name, "JPEG")


def face_names(ages):
    """Return a well-formed name for each age."""
    return [f"{age}_0_2_2017010914240{number:04d}.jpg.chip.jpg" for number, age in enumerate(ages)]


def pose_file(rotation):
    """Return a rotation in the format of Biwi Kinect's pose files."""
    rows = "".join(" ".join(f"{value:.6f}" for value in row) + " \n" for row in rotation.as_matrix())
    return rows + "\n87.1 -10.2 903.4 \n"


def write_biwi(folder, counts, genders):
    """Write ``counts`` frames per subject, and the genders; return the rotations in the order of the frames."""
    rng = np.random.default_rng(0)
    rotations = Rotation.random(sum(counts.values()), rng=np.random.default_rng(5))
    left = iter(rotations)
    for subject, count in counts.items():
        place = folder / "biwi" / "faces_0" / subject
        place.mkdir(parents=True)
        for frame in range(3, 3 + count):
            pixels = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"frame_{frame:05d}_rgb.png")
            (place / f"frame_{frame:05d}_pose.txt").write_text(pose_file(next(left)))
        (place / "rgb.cal").write_text("ignored")
        (place / "frame_00003_depth.bin").write_bytes(b"ignored")
    (folder / "biwi" / "genders.json").write_text(json.dumps(genders))
    return rotations
