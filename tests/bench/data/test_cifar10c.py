import pickle
import sys

import numpy as np
import pytest

from helpers.published_datasets import write_cifar10
from regtta.errors import InvalidFileError, MissingFileError, OptionError
from regtta_bench.data.cifar10c import cifar10c


@pytest.fixture
def folder(tmp_path):
    """Arrays of the published size, nearly all zeros and hence holes in the file."""
    place = tmp_path / "CIFAR-10-C"
    place.mkdir()
    images = np.lib.format.open_memmap(place / "fog.npy", "w+", np.uint8, (50_000, 32, 32, 3))
    for severity in range(1, 6):
        images[(severity - 1) * 10_000, 0, 1, 2] = severity
        images[severity * 10_000 - 1, 31, 31, 0] = 10 * severity
    np.save(place / "labels.npy", np.tile(np.arange(10_000) % 10, 5).astype(np.uint8))
    return tmp_path


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_a_severity_is_its_ten_thousand_rows(folder, severity):
    found = cifar10c(folder, "fog", severity)
    assert (found.published, found.corruption, found.severity) == (True, "fog", severity)
    assert isinstance(found.images, np.memmap)
    assert not found.images.flags.writeable
    assert found.images.shape == (10_000, 32, 32, 3)
    assert (found.images[0, 0, 1, 2], found.images[-1, 31, 31, 0]) == (severity, 10 * severity)
    assert found.labels.dtype == np.int64
    assert found.labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_as_a_domain_it_is_scaled(folder):
    domain = cifar10c(folder, "fog", 5).to_domain()
    assert domain.inputs.shape == (10_000, 3, 32, 32)
    assert domain.targets.shape == (10_000, 1)
    assert domain.inputs[0, 2, 0, 1].item() == pytest.approx(5 / 255)


def test_absent_corruptions_are_made_from_the_test_split(folder, monkeypatch):
    clean = write_cifar10(folder, monkeypatch)
    found = cifar10c(folder, "snow", 2, make=lambda images, name, severity: images // (len(name) - severity))
    assert not found.published
    np.testing.assert_array_equal(found.images, clean // 2)
    assert found.labels.tolist() == list(range(10))
    assert cifar10c(folder, "fog", 2, make=lambda *_: clean).published  # published wins
    for wrong in (clean[:5], clean.astype(np.float32), "images"):
        with pytest.raises(OptionError, match=r"Expected make to return uint8 images of shape \(10, 32, 32, 3\)"):
            cifar10c(folder, "snow", 2, make=lambda *_, wrong=wrong: wrong)


def test_missing_files_say_what_to_get(folder):
    with pytest.raises(MissingFileError, match=r"snow\.npy is not in .*zenodo.*CC BY.*CIFAR-10-C\. Or pass make="):
        cifar10c(folder, "snow", 1)
    with pytest.raises(MissingFileError, match="CIFAR-10 is not in"):
        cifar10c(folder, "snow", 1, make=lambda images, *_: images)
    (folder / "CIFAR-10-C" / "labels.npy").unlink()
    with pytest.raises(MissingFileError, match=r"labels\.npy is not in"):
        cifar10c(folder, "fog", 1)


class Bomb:
    def __reduce__(self):
        return (sys.exit, ("the pickle ran",))


def test_pickles_and_cut_or_foreign_arrays_are_rejected(folder):
    path = folder / "CIFAR-10-C" / "fog.npy"
    for write in (
        lambda: path.write_bytes(pickle.dumps(Bomb())),
        lambda: np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True),
        lambda: path.write_bytes(b""),
    ):
        write()
        with pytest.raises(InvalidFileError, match=r"fog\.npy is not a complete array file"):
            cifar10c(folder, "fog", 1)
    np.lib.format.open_memmap(path, "w+", np.uint8, (50_000, 32, 32, 3))
    with path.open("r+b") as file:
        file.truncate(1_000_000)
    with pytest.raises(InvalidFileError, match="not a complete array file"):
        cifar10c(folder, "fog", 1)
    for shape, kind in (((10_000, 32, 32, 3), np.uint8), ((50_000, 32, 32, 3), np.int8)):
        np.lib.format.open_memmap(path, "w+", kind, shape)
        with pytest.raises(InvalidFileError, match=r"Expected an array \(50000, 32, 32, 3\) of uint8"):
            cifar10c(folder, "fog", 1)


def test_labels_that_are_not_integers_are_rejected(folder):
    np.save(folder / "CIFAR-10-C" / "labels.npy", np.zeros(50_000))
    with pytest.raises(InvalidFileError, match=r"\(50000,\) of uint8 or int32 or int64 .*found \(50000,\) of float64"):
        cifar10c(folder, "fog", 1)


@pytest.mark.parametrize("name", ["../secret", "a/b", "", "labels", "Fog"])
def test_invalid_names_of_corruptions(folder, name):
    with pytest.raises(OptionError, match="the name of a corruption"):
        cifar10c(folder, name, 1)


@pytest.mark.parametrize("severity", [0, 6, 2.5])
def test_invalid_severities(folder, severity):
    with pytest.raises(OptionError, match="from 1 to 5"):
        cifar10c(folder, "fog", severity)
