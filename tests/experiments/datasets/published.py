"""Small files in the layout of the published data sets, whose checksums torchvision then expects."""

import hashlib
import pickle

import numpy as np
import scipy.io
from torchvision import datasets


def md5(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def write_svhn(folder, monkeypatch):
    """Six and four digits, with 10 for 0 as the real files have it; gives the images (N, 32, 32, 3) by split."""
    rng = np.random.default_rng(0)
    (folder / "svhn").mkdir()
    images, entries = {}, {}
    for split, count in (("train", 6), ("test", 4)):
        images[split] = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        path = folder / "svhn" / f"{split}_32x32.mat"
        labels = np.arange(1, count + 1, dtype=np.uint8)[:, None]
        labels[0] = 10
        scipy.io.savemat(path, {"X": images[split].transpose(1, 2, 3, 0), "y": labels}, do_compression=True)
        entries[split] = ["http://127.0.0.1:9/none", path.name, md5(path)]
    monkeypatch.setattr(datasets.SVHN, "split_list", entries)
    return images


def write_cifar10(folder, monkeypatch):
    """Ten images a batch; gives those of the test split (10, 32, 32, 3)."""
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


def write_mnist(folder):
    """Seven and five digits; gives the images (N, 28, 28) by split."""
    rng = np.random.default_rng(0)
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images = {}
    for part, count in (("train", 7), ("t10k", 5)):
        images[part] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(2051, images[part]))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(2049, np.arange(count, dtype=np.uint8)))
    return images


def idx(magic, values):
    """``values`` in MNIST's format."""
    shape = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return magic.to_bytes(4, "big") + shape + values.astype(np.uint8).tobytes()
