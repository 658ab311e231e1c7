import shutil
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.spatial.transform import Rotation
from torchvision import transforms

from helpers.published_datasets import write_biwi
from regtta.errors import InvalidFileError, MissingFileError, OptionError
from regtta_bench.data import biwi as module
from regtta_bench.data.biwi import biwi, biwi_frames, head_angles

GENDERS = {"01": "female", "02": "male", "03": "female"}
ROTATIONS = Rotation.random(11, rng=np.random.default_rng(5))


@pytest.fixture
def folder(tmp_path):
    """Five frames of 01, four of 02, two of 03, and one of 02 without a pose."""
    write_biwi(tmp_path, {"01": 5, "02": 4, "03": 2}, GENDERS)
    faces = tmp_path / "biwi" / "faces_0"
    shutil.copy(faces / "02" / "frame_00003_rgb.png", faces / "02" / "frame_00099_rgb.png")
    return tmp_path


def packed(folder, name):
    faces = folder / "biwi" / "faces_0"
    with tarfile.open(folder / "biwi" / name, "w:gz" if name.endswith("gz") else "w:") as archive:
        # Not in the order of the names: a frame's pose may come before or after it.
        for path in sorted(faces.rglob("*.*"), key=lambda path: path.name[::-1]):
            archive.add(path, f"faces_0/{path.parent.name}/{path.name}")
    shutil.rmtree(faces)


def test_the_angles_are_those_of_turns_about_z_y_and_x():
    rotations = Rotation.random(200, rng=np.random.default_rng(0))
    angles = head_angles(torch.from_numpy(rotations.as_matrix()))
    np.testing.assert_allclose(angles, rotations.as_euler("ZYX"), atol=1e-9)
    one = head_angles(torch.from_numpy(Rotation.from_euler("ZYX", [0.3, -0.2, 0.1]).as_matrix()))
    np.testing.assert_allclose(one, [0.3, -0.2, 0.1], atol=1e-12)  # yaw, roll, pitch


def test_frames_are_sorted_and_those_without_a_pose_counted(folder):
    frames = biwi_frames(folder)
    assert [subject for subject, _ in frames.names] == ["01"] * 5 + ["02"] * 4 + ["03"] * 2
    assert list(frames.names) == sorted(frames.names)
    assert frames.skipped == (("02", "00099"),)
    np.testing.assert_allclose(frames.angles, ROTATIONS.as_euler("ZYX"), atol=1e-5)


def test_images_are_the_centre_square_resized(folder):
    pictures = biwi_frames(folder).read()
    assert pictures.images.shape == (11, 256, 256, 3)
    image = Image.open(folder / "biwi" / "faces_0" / "02" / "frame_00005_rgb.png")
    transform = transforms.Compose([transforms.CenterCrop(48), transforms.Resize((256, 256))])
    np.testing.assert_array_equal(pictures.images[7], np.asarray(transform(image)))


@pytest.mark.parametrize("name", ["faces_0.tar", "faces_0.tar.gz", "faces_0.tgz"])
def test_an_archive_gives_the_same_as_the_folder_and_is_not_unpacked(folder, name):
    expected = biwi(folder)
    packed(folder, name)
    found = biwi(folder)
    np.testing.assert_array_equal(found.pictures.images, expected.pictures.images)
    assert torch.equal(found.pictures.targets, expected.pictures.targets)
    assert (found.subjects, found.skipped) == (expected.subjects, expected.skipped)
    assert sorted(path.name for path in folder.rglob("*")) == sorted(["biwi", "genders.json", name])


def test_source_and_target_are_the_genders(folder):
    data = biwi(folder)
    shift = data.split_by_gender("female", seed=0, angle="pitch")
    assert shift.name == "biwi-female-male-pitch"
    assert shift.train.images.shape == (6, 256, 256, 3)
    assert shift.validation.images.shape == (1, 224, 224, 3)
    assert shift.target.images.shape == (4, 224, 224, 3)
    pitch = ROTATIONS.as_euler("ZYX")[:, 2]
    np.testing.assert_allclose(shift.target.targets[:, 0], pitch[5:9], atol=1e-5)
    source = torch.cat([shift.train.targets, shift.validation.targets])[:, 0]
    np.testing.assert_allclose(sorted(source), sorted([*pitch[:5], *pitch[9:]]), atol=1e-5)
    np.testing.assert_array_equal(shift.target.images, data.pictures.images[5:9, 16:240, 16:240])
    back = data.split_by_gender("male", seed=0)
    assert (back.name, back.train.targets.shape, len(back.target)) == ("biwi-male-female", (3, 3), 7)
    other = data.split_by_gender("female", seed=3, angle="pitch")
    assert not torch.equal(other.train.targets, shift.train.targets)


def test_options_that_are_misspelt(folder):
    data = biwi(folder)
    with pytest.raises(OptionError, match="'yaw', 'roll', 'pitch'.*found 'jaw'"):
        data.split_by_gender("male", seed=0, angle="jaw")
    with pytest.raises(OptionError, match="found 'Male'"):
        data.split_by_gender("Male", seed=0)


def test_genders_that_are_missing_or_all_the_same(folder, tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text('{"01": "female", "02": "female"}')
    with pytest.raises(InvalidFileError, match=r"lacks the folders \['03'\]"):
        biwi(folder, genders=mine)
    mine.write_text('{"01": "male", "02": "male", "03": "male"}')
    data = biwi(folder, genders=mine)
    for source in ("male", "female"):
        with pytest.raises(InvalidFileError, match="both genders, found only male"):
            data.split_by_gender(source, seed=0)
    (folder / "biwi" / "genders.json").unlink()
    with pytest.raises(MissingFileError, match=r"not part of the data set.*biwi/genders\.json"):
        biwi(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 0 0\n0 1 0\n",
        "1 0 0\n0 1 0\n0 0\n",
        "1 0 0\n0 one 0\n0 0 1\n",
        "1 0 0\n0 nan 0\n0 0 1\n",
        "2 0 0\n0 2 0\n0 0 2\n",
        "é 0 0\n0 1 0\n0 0 1\n",
        "1 0 0 0\n0 1 0 0\n0 0 1 0\n",
    ],
)
def test_a_pose_file_without_a_rotation_is_named(folder, text):
    (folder / "biwi" / "faces_0" / "01" / "frame_00004_pose.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFileError, match=r"rotation matrix.*frame_00004_pose|frame_00004_pose.*rotation matrix"):
        biwi_frames(folder)


def test_sizes_are_bounded(folder, monkeypatch):
    pose = folder / "biwi" / "faces_0" / "01" / "frame_00004_pose.txt"
    text = pose.read_text()
    pose.write_text(text + " " * 70_000)
    with pytest.raises(InvalidFileError, match=r"frame_00004_pose.txt has \d+ bytes; at most 65536"):
        biwi_frames(folder)
    pose.write_text(text)
    frames = biwi_frames(folder)
    monkeypatch.setattr(module, "MAX_PICTURE_BYTES", 100)
    with pytest.raises(InvalidFileError, match=r"frame_00003_rgb.png has \d+ bytes; at most 100"):
        frames.read()
    monkeypatch.setattr(module, "MAX_FRAMES", 3)
    with pytest.raises(InvalidFileError, match="exceeds the maximum of 3 frames"):
        biwi_frames(folder)


def test_damaged_gone_or_doubled_frames(folder):
    frames = biwi_frames(folder)
    path = folder / "biwi" / "faces_0" / "03" / "frame_00004_rgb.png"
    raw = path.read_bytes()
    path.write_bytes(raw[:2000])
    with pytest.raises(InvalidFileError, match=r"03/frame_00004_rgb\.png cannot be read"):
        frames.read()
    path.unlink()
    with pytest.raises(InvalidFileError, match="1 frames are no longer in"):
        frames.read()
    path.write_bytes(raw)
    faces = folder / "biwi" / "faces_0"
    with tarfile.open(folder / "biwi" / "faces_0.tar", "w") as archive:
        for _ in range(2):
            archive.add(path, "faces_0/03/frame_00004_rgb.png")
    shutil.rmtree(faces)
    with pytest.raises(InvalidFileError, match="is a duplicate"):
        biwi_frames(folder)


def test_without_frames_the_error_says_what_to_get(tmp_path):
    with pytest.raises(MissingFileError, match=r"Biwi Kinect is not in .*Kaggle.*NC-ND.*put it at .*biwi/faces_0"):
        biwi_frames(tmp_path)
    (tmp_path / "biwi" / "faces_0" / "01").mkdir(parents=True)
    (tmp_path / "biwi" / "faces_0" / "01" / "frame_00003_rgb.png").write_bytes(b"")
    with pytest.raises(MissingFileError, match=r"has no faces_0/NN/frame_XXXXX_rgb.png with a .*_pose.txt beside it"):
        biwi_frames(tmp_path)
