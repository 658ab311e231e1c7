import gzip

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.published_datasets import write_subset
from helpers.real_data import FOLDER, needs_real_data
from regtta.errors import InvalidFileError, MissingFileError
from regtta_bench.data.digit_images import mnist_test, read_idx, svhn_subset_to_mnist


@pytest.fixture
def folder(tmp_path):
    write_subset(tmp_path)
    return tmp_path


def test_mnist_becomes_three_channels_of_32_pixels(folder):
    domain = mnist_test(folder)
    assert domain.inputs.shape == (5, 3, 32, 32)
    assert domain.targets[:, 0].tolist() == [7, 2, 1, 0, 4]
    raw = read_idx(folder / "mnist" / "t10k-images-idx3-ubyte.gz", 2051)
    pillow = np.asarray(Image.fromarray(raw[0]).resize((32, 32), Image.Resampling.BILINEAR)) / 255
    np.testing.assert_allclose(domain.inputs[0, 0], pillow, atol=1.01 / 255)  # Pillow rounds to whole grey levels
    assert torch.equal(domain.inputs[:, 0], domain.inputs[:, 2])


def test_svhns_subset_keeps_its_name_and_its_pixels(folder):
    shift = svhn_subset_to_mnist(folder)
    assert shift.name == "svhn-subset"
    assert (len(shift.train), len(shift.validation), len(shift.target)) == (6, 4, 5)
    raw = np.load(folder / "svhn" / "svhn_test_first10000_32x32.npz")["x"]
    np.testing.assert_allclose(shift.train.inputs[2, 1, 3, 4], raw[2, 3, 4, 1] / 255, rtol=1e-6)
    assert shift.train.targets[:, 0].tolist() == list(range(6))


def test_files_that_are_wrong_or_missing(folder):
    path = folder / "mnist" / "t10k-labels-idx1-ubyte.gz"
    with pytest.raises(InvalidFileError, match="Expected an idx file"):
        read_idx(path, 2051)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    with pytest.raises(InvalidFileError, match=r"Expected values of shape \(5,\)"):
        read_idx(path, 2049)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidFileError, match="not a complete gzip file"):
        read_idx(path, 2049)
    path.unlink()
    with pytest.raises(MissingFileError, match="MNIST's test split is not in"):
        mnist_test(folder)


@needs_real_data
@pytest.mark.real_data
def test_the_real_digits():
    shift = svhn_subset_to_mnist(FOLDER)
    assert (len(shift.train), len(shift.validation), len(shift.target)) == (10_000, 1_083, 10_000)
    assert 0.1 < shift.target.inputs.mean().item() < 0.16
    assert set(shift.train.targets[:, 0].tolist()) == set(range(10))
