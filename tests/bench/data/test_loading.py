import dataclasses

import numpy as np
import pytest
import torch

from helpers.published_datasets import (
    face_names,
    write_biwi,
    write_california,
    write_cifar10,
    write_subset,
    write_tables,
    write_utkface,
)
from helpers.toy_datasets import GENDERS
from regtta.errors import MissingFileError
from regtta_bench.corruptions import corrupt
from regtta_bench.data import loading
from regtta_bench.data.loading import LOADERS, DataLocation, check_available
from regtta_bench.paper.settings import SETTINGS
from regtta_bench.shifts import SOURCES


def test_every_setting_has_a_loader_and_every_loader_a_setting():
    assert {setting.data for setting in (*SETTINGS.values(), *SOURCES.values())} == set(LOADERS)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("california", r"California Housing is not in .* public domain.*--download"),
        ("svhn", r"SVHN is not in .* non-commercial use only.*--download"),
        ("svhn-subset", r"The subset of SVHN is not in"),
        ("cifar10", r"CIFAR-10 is not in .*--download"),
        ("utkface", r"UTKFace is not in .* non-commercial research only"),
        ("biwi", r"Biwi Kinect is not in"),
        ("mnist", r"MNIST's test split is not in"),
        ("bike", r"UCI bike sharing is not in .* CC BY 4.0.*bike_sharing/hour.csv"),
        ("wine", r"UCI wine quality is not in .* CC BY 4.0.*winequality-red.csv"),
        ("pm25", r"UCI Beijing multi-site air quality is not in .* CC BY 4.0.*PRSA_Data_Dongsi"),
        ("cmapss", r"NASA C-MAPSS is not in .* public domain.*train_FD001.txt"),
    ],
)
def test_missing_data_is_reported_before_any_work(tmp_path, data, said):
    with pytest.raises(MissingFileError, match=said):
        check_available(data, DataLocation(tmp_path))


def test_available_data_is_accepted(tmp_path, monkeypatch):
    write_california(tmp_path)
    write_subset(tmp_path)
    write_utkface(tmp_path, face_names([20]))
    write_biwi(tmp_path, {"01": 1, "02": 1}, GENDERS)
    write_tables(tmp_path)
    for data in ("california", "svhn-subset", "utkface", "biwi", "mnist", "bike", "wine", "pm25", "cmapss"):
        check_available(data, DataLocation(tmp_path))
    with pytest.raises(MissingFileError, match="SVHN is not in"):  # the folder svhn alone holds the subset
        check_available("svhn", DataLocation(tmp_path))
    (tmp_path / "biwi" / "genders.json").unlink()
    with pytest.raises(MissingFileError, match="There is no file .*genders.json"):
        check_available("biwi", DataLocation(tmp_path))
    elsewhere = tmp_path / "who.json"
    with pytest.raises(MissingFileError, match="who.json"):
        check_available("biwi", DataLocation(tmp_path, genders=elsewhere))


def test_download_is_left_to_torchvision_or_fetches_california(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(loading, "download_california", fetched.append)
    for data in ("svhn", "cifar10", "california"):
        check_available(data, DataLocation(tmp_path, download=True))
    assert fetched == [tmp_path]
    with pytest.raises(MissingFileError, match="UTKFace"):
        check_available("utkface", DataLocation(tmp_path, download=True))


def test_cifar10s_target_is_its_test_split_corrupted_at_the_highest_severity(tmp_path, monkeypatch):
    test = write_cifar10(tmp_path, monkeypatch)
    loaded = LOADERS["cifar10"](DataLocation(tmp_path), "", 0)
    assert (len(loaded.train), len(loaded.validation)) == (50, 10)
    expected = corrupt(test, "gaussian_noise", severity=5, constants="cifar", seed=0)
    np.testing.assert_array_equal(
        (loaded.target("gaussian_noise").inputs * 255).round().byte(), expected.transpose(0, 3, 1, 2)
    )


def test_digits_are_corrupted_by_the_constants_for_small_images(tmp_path):
    write_subset(tmp_path)
    for data in ("svhn-subset", "mnist"):
        loaded = LOADERS[data](DataLocation(tmp_path), "", 0)
        clean = (loaded.validation.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy()
        target = loaded.target("impulse_noise")
        expected = corrupt(clean, "impulse_noise", severity=5, constants="cifar", seed=0)
        np.testing.assert_array_equal((target.inputs * 255).round().byte().permute(0, 2, 3, 1), expected)
        assert torch.equal(target.targets, loaded.validation.targets)


def test_mnist_is_split_into_halves_in_the_order_of_the_file(tmp_path):
    write_subset(tmp_path)
    digits = LOADERS["svhn-subset"](DataLocation(tmp_path), "", 0).target("mnist")
    loaded = LOADERS["mnist"](DataLocation(tmp_path), "", 0)
    assert len(loaded.train) == -(-len(digits) // 2)
    torch.testing.assert_close(torch.cat([loaded.train.inputs, loaded.validation.inputs]), digits.inputs)


def test_utkfaces_target_is_the_held_out_fifth_corrupted_before_anything_else(tmp_path):
    write_utkface(tmp_path, face_names(range(20, 30)))
    loaded = LOADERS["utkface"](DataLocation(tmp_path), "", 3)
    assert (loaded.train.inputs.shape, loaded.train.inputs.dtype) == ((8, 3, 256, 256), torch.uint8)
    clean = loaded.validation.inputs.permute(0, 2, 3, 1).numpy()
    target = loaded.target("shot_noise")
    expected = corrupt(clean, "shot_noise", severity=5, seed=0)
    np.testing.assert_array_equal(target.inputs.permute(0, 2, 3, 1), expected)
    assert torch.equal(target.targets, loaded.validation.targets)


def test_biwi_is_read_once_for_all_its_source_domains(tmp_path, monkeypatch):
    write_biwi(tmp_path, {"01": 5, "02": 4, "03": 5}, GENDERS)
    reads = []
    original = loading.biwi
    loading._frames.cache_clear()
    monkeypatch.setattr(loading, "biwi", lambda *a, **k: reads.append(a) or original(*a, **k))
    place = DataLocation(tmp_path)
    female = LOADERS["biwi"](place, "female-pitch", 0)
    male = LOADERS["biwi"](place, "male-yaw", 0)
    both = LOADERS["biwi"](place, "female", 0)
    assert len(reads) == 1
    assert (len(female.train), len(female.validation), len(female.target("male"))) == (8, 2, 4)
    assert (len(male.train) + len(male.validation), len(male.target("female"))) == (4, 10)
    assert (female.train.targets.shape[1], both.train.targets.shape[1]) == (1, 3)
    assert torch.equal(female.target("male").targets[:, 0], both.target("male").targets[:, 2])  # yaw, roll, pitch
    loading._frames.cache_clear()


def test_a_location_is_picklable(tmp_path):
    import pickle

    place = DataLocation(tmp_path, download=True)
    assert pickle.loads(pickle.dumps(place)) == dataclasses.replace(place)


def test_a_location_without_a_root_is_resolved_from_the_environment_on_access(tmp_path, monkeypatch):
    place = DataLocation()
    monkeypatch.setenv("REGTTA_DATA", str(tmp_path))
    assert place.folder == tmp_path
    monkeypatch.delenv("REGTTA_DATA")
    with pytest.raises(MissingFileError, match="No folder of data sets was given"):
        check_available("california", place)


def test_skipped_files_are_logged(tmp_path, caplog):
    write_utkface(tmp_path, [*face_names(range(20, 30)), "no age.jpg"])
    (tmp_path / "UTKFace" / "readme.txt").write_text("")
    LOADERS["utkface"](DataLocation(tmp_path), "", 0)
    assert "2 files of UTKFace have no age in their name" in caplog.text
    write_biwi(tmp_path, {"01": 5, "02": 4}, GENDERS)
    (tmp_path / "biwi" / "faces_0" / "01" / "frame_00003_pose.txt").unlink()
    loading._frames.cache_clear()
    LOADERS["biwi"](DataLocation(tmp_path), "female", 0)
    assert "1 frames of Biwi Kinect have no pose" in caplog.text
    loading._frames.cache_clear()
