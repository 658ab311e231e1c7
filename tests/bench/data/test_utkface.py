import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from helpers.published_datasets import face_names, write_utkface
from regtta.errors import FileError, InvalidFileError, MissingFileError
from regtta_bench.data.utkface import utkface, utkface_files

MALFORMED = ("61_1_20170109142408075.jpg.chip.jpg", "53__0_20170116184028385.jpg.chip.jpg", "44_1_4_2_2017.jpg")
SKIPPED = (
    ".DS_Store",
    "20170109142408075.jpg.chip.jpg",
    "20170109142408075_1.jpg.chip.jpg",
    "_0_1_20170109.jpg.chip.jpg",
    "a folder",
    "readme.txt",
    "thirty_0_1_20170109.jpg.chip.jpg",
    "30_0_1_20170109.jpg.txt",
    "٣٠_0_1_2017.jpg",
)


@pytest.fixture
def folder(tmp_path):
    write_utkface(tmp_path, [*face_names(range(1, 8)), *MALFORMED])
    faces = tmp_path / "UTKFace"
    for name in SKIPPED:
        (faces / name).mkdir() if name == "a folder" else (faces / name).write_bytes(b"")
    return tmp_path


def test_ages_are_the_first_field_and_other_names_are_counted(folder):
    faces = utkface_files(folder)
    assert sorted(faces.ages) == [1, 2, 3, 4, 5, 6, 7, 44, 53, 61]
    assert list(faces.files) == sorted(faces.files)
    assert all(path.name.startswith(f"{age}_") for path, age in zip(faces.files, faces.ages, strict=True))
    assert set(faces.skipped) == set(SKIPPED)
    some = faces.take(torch.tensor([3, 0]))
    assert (some.files, some.ages) == ((faces.files[3], faces.files[0]), (faces.ages[3], faces.ages[0]))


def test_images_are_bytes_of_256_to_train_on_and_of_224_to_evaluate_on(folder):
    faces = utkface(folder, seed=0)
    assert (faces.train.images.shape, faces.validation.images.shape) == ((8, 256, 256, 3), (2, 224, 224, 3))
    assert faces.train.images.dtype == faces.validation.images.dtype == np.uint8
    assert faces.validation.targets.shape == (2, 1)
    ages = torch.cat([faces.train.targets, faces.validation.targets])[:, 0].tolist()
    assert sorted(ages) == [1, 2, 3, 4, 5, 6, 7, 44, 53, 61]
    assert len(faces.skipped) == len(SKIPPED)
    path = next((folder / "UTKFace").glob(f"{int(faces.validation.targets[1])}_*"))
    transform = transforms.Compose([transforms.Resize((256, 256)), transforms.CenterCrop(224)])
    np.testing.assert_array_equal(faces.validation.images[1], np.asarray(transform(Image.open(path))))


def test_the_split_depends_on_the_seed(folder):
    first, same, different = (utkface(folder, seed=seed).train.targets.tolist() for seed in (0, 0, 1))
    assert first == same
    assert first != different


def test_a_damaged_image_is_named(folder):
    path = folder / "UTKFace" / MALFORMED[0]
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InvalidFileError, match=r"UTKFace/61_1_20170109142408075\.jpg\.chip\.jpg cannot be read"):
        utkface(folder, seed=0)


def test_a_file_that_is_gone_is_named(folder):
    faces = utkface_files(folder)
    faces.files[2].unlink()
    with pytest.raises(FileError, match=faces.files[2].name):
        faces.read()


def test_without_faces_the_error_says_what_to_get(tmp_path):
    with pytest.raises(MissingFileError, match=r"UTKFace is not in .*susanqq.*non-commercial.*put it at .*UTKFace"):
        utkface_files(tmp_path)
    (tmp_path / "UTKFace").mkdir()
    (tmp_path / "UTKFace" / "x.jpg").write_bytes(b"")
    with pytest.raises(MissingFileError, match=r"has no image named .* \(1 other names\).*susanqq"):
        utkface_files(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "UTKFace").write_bytes(b"")
    with pytest.raises(InvalidFileError, match="Expected a folder of images"):
        utkface_files(tmp_path / "other")
