import pickle
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets, transforms

from helpers.published_datasets import md5, write_cifar10, write_mnist, write_svhn
from regtta.errors import FileError, InvalidFileError, MissingExtraError, MissingFileError, OptionError
from regtta_bench.data.digit_images import mnist_test
from regtta_bench.data.torchvision_sets import cifar10, cifar10_arrays, mnist, svhn, svhn_to_mnist


def test_svhn_is_only_scaled_and_its_zeros_are_zeros(tmp_path, monkeypatch):
    images = write_svhn(tmp_path, monkeypatch)
    for split, digits in (("train", [0, 2, 3, 4, 5, 6]), ("test", [0, 2, 3, 4])):
        domain = svhn(tmp_path, split)
        assert domain.targets[:, 0].tolist() == digits
        assert domain.inputs.is_contiguous()
        expected = torch.stack([transforms.ToTensor()(Image.fromarray(image)) for image in images[split]])
        assert torch.equal(domain.inputs, expected)


def test_mnist_becomes_three_channels_of_32_pixels(tmp_path):
    images = write_mnist(tmp_path)
    train, test = mnist(tmp_path, "train"), mnist(tmp_path, "test")
    assert (train.inputs.shape, test.inputs.shape) == ((7, 3, 32, 32), (5, 3, 32, 32))
    assert train.targets[:, 0].tolist() == list(range(7))
    pillow = np.asarray(Image.fromarray(images["train"][3]).resize((32, 32), Image.Resampling.BILINEAR)) / 255
    np.testing.assert_allclose(train.inputs[3, 1], pillow, atol=1.01 / 255)  # Pillow rounds to whole grey levels
    again = mnist_test(tmp_path)  # which reads the same files by itself
    assert torch.equal(test.inputs, again.inputs)
    assert torch.equal(test.targets, again.targets)


def test_cifar10_is_only_scaled(tmp_path, monkeypatch):
    images = write_cifar10(tmp_path, monkeypatch)
    assert len(cifar10(tmp_path, "train")) == 50
    domain = cifar10(tmp_path, "test")
    assert domain.targets[:, 0].tolist() == list(range(10))
    expected = torch.stack([transforms.ToTensor()(Image.fromarray(image)) for image in images])
    assert torch.equal(domain.inputs, expected)
    pixels, labels = cifar10_arrays(tmp_path, "test")
    np.testing.assert_array_equal(pixels, images)
    assert labels.dtype == np.int64


def test_svhn_to_mnist(tmp_path, monkeypatch):
    write_svhn(tmp_path, monkeypatch)
    write_mnist(tmp_path)
    shift = svhn_to_mnist(tmp_path)
    assert (shift.name, len(shift.train), len(shift.validation), len(shift.target)) == ("svhn-mnist", 6, 4, 5)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (svhn, r"SVHN is not in .*ufldl.*non-commercial.*put it at .*/svhn\. Or pass download=True;"),
        (mnist, r"MNIST is not in .*torchvision.*none stated.*put it at .*/MNIST/raw\. Or pass download=True;"),
        (cifar10, r"CIFAR-10 is not in .*kriz.*put it at .*/cifar-10-batches-py\. Or pass download=True;"),
    ],
)
def test_missing_data_says_what_to_get(tmp_path, load, message):
    for split in ("train", "test"):
        with pytest.raises(MissingFileError, match=message):
            load(tmp_path, split)
    with pytest.raises(OptionError, match=r"split to be one of \['train', 'test'\], found 'extra'"):
        load(tmp_path, "extra")
    assert not list(tmp_path.iterdir())


def test_files_that_are_not_the_published_ones_are_rejected(tmp_path, monkeypatch):
    write_svhn(tmp_path, monkeypatch)
    path = tmp_path / "svhn" / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidFileError, match=r"SVHN in .* incomplete or not as published.*ufldl"):
        svhn(tmp_path, "test")
    write_mnist(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
    for raw in (path.read_bytes()[:-100], b"\0\0\0\0", b"text"):
        path.write_bytes(raw)
        with pytest.raises(InvalidFileError, match="MNIST in .* incomplete or not as published"):
            mnist(tmp_path, "test")


def test_mnists_images_and_labels_must_be_as_many(tmp_path):
    write_mnist(tmp_path)
    raw = tmp_path / "MNIST" / "raw"
    (raw / "t10k-labels-idx1-ubyte").write_bytes((raw / "train-labels-idx1-ubyte").read_bytes())
    with pytest.raises(InvalidFileError, match=r"found images of shape \(5, 28, 28\) in .* and 7 labels"):
        mnist(tmp_path, "test")


class Bomb:
    def __reduce__(self):
        return (sys.exit, ("the pickle ran",))


def test_a_pickle_that_is_not_the_published_one_never_runs(tmp_path, monkeypatch):
    write_cifar10(tmp_path, monkeypatch)
    place = tmp_path / "cifar-10-batches-py"
    (place / "batches.meta").write_bytes(pickle.dumps(Bomb()))  # which is not so much as opened
    assert len(cifar10(tmp_path, "test")) == 10
    (place / "test_batch").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InvalidFileError, match="CIFAR-10 in .* not as published .*checksum"):
        cifar10(tmp_path, "test")


def test_a_pickle_does_not_run_even_with_the_published_checksum(tmp_path, monkeypatch):
    write_cifar10(tmp_path, monkeypatch)
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(pickle.dumps(Bomb()))
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [[path.name, md5(path)]])
    with pytest.raises(InvalidFileError, match="CIFAR-10 in .* not as published .*not a CIFAR-10 batch"):
        cifar10(tmp_path, "test")


def test_a_failed_download_is_reported(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(datasets.svhn, "download_url", fail)
    monkeypatch.setattr(datasets.cifar, "download_and_extract_archive", fail)
    for load, name in ((svhn, "SVHN"), (cifar10, "CIFAR-10")):
        with pytest.raises(FileError, match=f"{name} could not be downloaded to .*no route to host"):
            load(tmp_path, "test", download=True)


def test_without_torchvision_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingExtraError, match="Reading SVHN requires torchvision, which is not installed"):
        svhn(tmp_path, "test")
