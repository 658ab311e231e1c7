"""Folders of images: which files, how they are decoded, and their labels."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

from helpers.cli_images import NAMES, SIZE, make_photos
from regtta.cli.data import images
from regtta.cli.data.images import IMAGENET_MEAN, IMAGENET_STD, ImageTransform
from regtta.cli.data.labelled_batches import BatchShard
from regtta.cli.data.open_data import DataOptions, open_data, shuffle
from regtta.errors import BatchError, FileError, MismatchError, MissingExtraError, MissingFileError, OptionError


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_photos(tmp_path)
    return tmp_path / "photos"


def opened(folder: Path | str = "photos", batch_size: int = 5, dtype: torch.dtype = torch.float32, **others: object):
    options = {"image_size": SIZE} | others
    return open_data(DataOptions(str(folder), **options), batch_size=batch_size, dtype=dtype)


def resized_then_cropped(path: Path, size: int) -> np.ndarray:
    """Resize the whole image with Pillow and crop its centre, as torchvision does."""
    with Image.open(path) as image:
        whole = image.convert("RGB")
    short = min(whole.size)
    width, height = (int(size * side / short) for side in whole.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = whole.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def test_images_of_all_subfolders_are_sorted_by_path_and_read_in_batches(photos: Path):
    (photos / "notes.txt").write_text("no image")
    data = opened()
    assert data.names == NAMES
    assert (data.rows, data.target_names, data.reiterable) == (16, (), True)
    batches = list(data.batches())
    assert [tuple(batch.inputs.shape) for batch in batches] == [(5, 3, SIZE, SIZE)] * 3 + [(1, 3, SIZE, SIZE)]
    assert all(batch.targets is None for batch in batches)
    assert torch.equal(torch.cat([b.inputs for b in data.batches()]), torch.cat([b.inputs for b in batches]))


@pytest.mark.parametrize("size", [1, 7, 8, 40])
def test_the_centre_of_the_resized_image_is_normalised(photos: Path, size):
    found = torch.cat([batch.inputs for batch in opened(image_size=size).batches()])
    pixels = np.stack([resized_then_cropped(photos / name, size) for name in NAMES])
    expected = (pixels / 255 - IMAGENET_MEAN) / IMAGENET_STD
    np.testing.assert_allclose(found.permute(0, 2, 3, 1), expected, atol=1e-6)
    raw = torch.cat([b.inputs for b in opened(image_size=size, image_mean=(0, 0, 0), image_std=(1, 1, 1)).batches()])
    assert float(raw.min()) >= 0
    assert float(raw.max()) <= 1
    assert np.array_equal(np.rint(raw.permute(0, 2, 3, 1).numpy() * 255), pixels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_models_precision_is_kept(photos: Path, dtype):
    batch = next(opened(dtype=dtype).batches())
    assert batch.inputs.dtype == dtype
    torch.testing.assert_close(batch.inputs.float(), next(opened().batches()).inputs, rtol=1e-2, atol=1e-6)


def test_an_extreme_aspect_ratio_is_rejected(tmp_path: Path):
    Image.new("RGB", (60_000, 1)).save(tmp_path / "line.png")
    with pytest.raises(FileError, match=r"line.png: it is 60000×1, too elongated to be resized to 13440000×224"):
        ImageTransform(224).read(tmp_path / "line.png")


def test_the_views_of_torchvision_are_the_same(photos: Path):
    view = v2.Compose(
        [
            v2.Resize(SIZE, InterpolationMode.BICUBIC),
            v2.CenterCrop(SIZE),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    found = torch.cat([batch.inputs for batch in opened().batches()])
    for name, values in zip(NAMES, found, strict=True):
        with Image.open(photos / name) as image:
            torch.testing.assert_close(values, view(image.convert("RGB")), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_other_modes_are_converted_to_rgb(tmp_path: Path, mode):
    suffix = "tif" if mode == "CMYK" else "png"
    image = Image.new("RGB", (20, 20), (255, 255, 255)).convert(mode)
    image.save(tmp_path / f"i.{suffix}")
    assert ImageTransform(4).read(tmp_path / f"i.{suffix}").tolist() == [[[255] * 3] * 4] * 4


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path: Path):
    image = Image.new("P", (20, 20), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.save(tmp_path / "i.png", transparency=b"\x00\x80")
    assert ImageTransform(1).read(tmp_path / "i.png").tolist() == [[[10, 20, 30]]]


@pytest.mark.parametrize(("mode", "suffix"), [("I;16", "png"), ("F", "tif"), ("I", "tif")])
def test_images_of_more_than_8_bits_are_rejected(tmp_path: Path, mode, suffix):
    Image.new(mode, (20, 20)).save(tmp_path / f"deep.{suffix}")
    with pytest.raises(BatchError, match=rf"deep.{suffix} has values of more than 8 bits"):
        list(opened(tmp_path).batches())


def test_a_broken_image_is_named(photos: Path):
    whole = (photos / "a/one.png").read_bytes()
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(photos / "photo03.png")
    large = (photos / "photo03.png").read_bytes()
    for content in (b"", b"text", large[: len(large) // 2], b"GIF89a" + whole[6:]):
        (photos / "photo03.png").write_bytes(content)
        with pytest.raises(FileError, match=r"Could not read the image photos/photo03.png: .*Replace the file"):
            list(opened().batches())


def test_an_image_of_too_many_pixels_is_rejected(photos: Path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    with pytest.raises(FileError, match="Could not read the image photos/.*exceeds limit"):
        list(opened().batches())


def test_images_are_decoded_when_they_are_visited(photos: Path, monkeypatch):
    seen: list[str] = []
    read = ImageTransform.read
    monkeypatch.setattr(ImageTransform, "read", lambda self, path: seen.append(path.name) or read(self, path))
    data = opened(batch_size=4)
    assert seen == []
    shuffled = shuffle(data, seed=1, batch_size=4)
    assert seen == []
    next(shuffled.batches())
    assert len(seen) == 4
    seen.clear()
    shards = [list(data.batches(BatchShard(rank, 2))) for rank in range(2)]
    assert [len(shard) for shard in shards] == [2, 2]
    assert len(seen) == 16  # each image once


def test_shuffled_images_keep_their_labels(photos: Path):
    data = opened(target="age")
    plain, shuffled = list(data.batches()), shuffle(data, seed=2, batch_size=6)
    visited = list(shuffled.batches())
    assert [len(batch.inputs) for batch in visited] == [6, 6, 4]
    inputs, targets = (torch.cat([getattr(b, name) for b in plain]) for name in ("inputs", "targets"))
    assert torch.equal(torch.cat([b.inputs for b in visited]), inputs[shuffled.order])
    assert torch.equal(torch.cat([b.targets for b in visited]), targets[shuffled.order])


@pytest.mark.parametrize("case", ["found", "named", "column", "gzip", "backslashes"])
def test_labels_belong_to_their_images(photos: Path, case):
    table = pd.read_csv("photos/labels.csv", dtype={"file": str})
    others: dict[str, object] = {}
    if case != "found":
        (photos / "labels.csv").unlink()
        name = "all.csv.gz" if case == "gzip" else "all.csv"
        if case == "column":
            table, others = table[["age", "size", "file"]], {"inputs": "file"}
        if case == "backslashes":
            table["file"] = [rf".\{path}".replace("/", "\\") for path in table["file"]]
        table.to_csv(name, index=False)
        others |= {"labels": Path(name)}
    one = opened(target="age", **others)
    assert torch.equal(torch.cat([b.targets for b in one.batches()]), torch.arange(16.0).double())
    two = opened(target="size,age", **others)
    assert two.target_names == ("size", "age")
    expected = torch.stack([torch.arange(16.0) / 2, torch.arange(16.0)], dim=1).double()
    assert torch.equal(torch.cat([b.targets for b in two.batches()]), expected)


def test_names_like_numbers_and_empty_labels(tmp_path: Path):
    for name in ("007.png", "08.png"):
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,y\n08.png,\n007.png,3\n")
    (batch,) = opened(tmp_path, target="y").batches()
    assert batch.targets[0] == 3
    assert batch.targets[1].isnan()


def changed_labels(change) -> None:
    table = pd.read_csv("photos/labels.csv").astype({"age": object})
    change(table).to_csv("photos/labels.csv", index=False)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda t: t[1:], MismatchError, "labels.csv has no row for 1 images of photos: photo08.png. Add"),
        (lambda t: t[t.file == "e.tiff"], MismatchError, "no row for 15 images of photos: .* and 12 more"),
        (lambda t: pd.concat([t, t[2:3]]), MismatchError, "names the image 'photo06.png' twice, in rows 3 and 17"),
        (
            lambda t: t.replace({"e.tiff": "f.tiff"}),
            MismatchError,
            "names 1 images that photos does not have: f.tiff. Expected paths .* such as B/upper.JPG",
        ),
        (lambda t: t.replace({"e.tiff": None}), BatchError, "Row 10 of photos/labels.csv has no image name"),
        (lambda t: t.replace({4.0: "old"}), BatchError, "Column 'age' of .* is not numeric: row 12 holds 'old'"),
        (lambda t: t.rename(columns={"age": "years"}), OptionError, "has no column 'age'; it has file, years, size"),
        (lambda t: t[["age", "file"]], OptionError, "column of image names in photos/labels.csv is 'age'"),
    ],
)
def test_labels_that_do_not_match_the_images_are_rejected(photos: Path, change, error, words):
    changed_labels(change)
    with pytest.raises(error, match=words):
        opened(target="age")


@pytest.mark.parametrize(
    ("others", "error", "words"),
    [
        ({"image_size": None}, OptionError, "photos is a folder of images. Pass --image-size N"),
        ({"image_size": 0}, OptionError, "--image-size to be a whole number of at least 1"),
        ({"columns": ("a",)}, OptionError, "--columns does not apply to a folder of images"),
        ({"inputs": "file"}, OptionError, "--inputs does not apply to images without labels"),
        ({"image_mean": (0.5,)}, OptionError, "Expected --image-mean to be three numbers, .* found 0.5"),
        ({"image_mean": (0.5, 1.0, np.nan)}, OptionError, "Expected --image-mean to be three numbers"),
        ({"image_std": (0.5, 0.0, 1.0)}, OptionError, "Expected --image-std to be three numbers above 0"),
        ({"labels": Path("l.csv")}, OptionError, "--labels needs .* Pass --target NAME"),
        ({"labels": Path("l.csv"), "target": "age"}, MissingFileError, "no file l.csv"),
        ({"labels": Path("l.txt"), "target": "age"}, OptionError, "--labels to end in .csv"),
    ],
)
def test_options_that_do_not_apply_are_rejected(photos: Path, others, error, words):
    Path("l.txt").write_text("a,b\n")
    with pytest.raises(error, match=words):
        opened(**others)


def test_labels_without_a_file_are_rejected(photos: Path):
    (photos / "labels.csv").unlink()
    with pytest.raises(OptionError, match="photos has no labels.csv .* Pass --labels FILE"):
        opened(target="age")


@pytest.mark.parametrize(
    "others", [{"image_size": 8}, {"image_mean": (0, 0, 0)}, {"image_std": (1, 1, 1)}, {"labels": Path("l.csv")}]
)
@pytest.mark.parametrize("data", ["t.csv", "t.npz", "mymodel:batches"])
def test_options_of_images_do_not_apply_to_other_data(photos: Path, others, data):
    Path("t.csv").write_text("a\n1\n")
    np.savez("t.npz", x=np.zeros((2, 2)))
    option = f"--{next(iter(others)).replace('_', '-')}"
    with pytest.raises(OptionError, match=f"{option} does not apply to a (file|loader). It is for a folder of images"):
        opened(data, **({"image_size": None} | others))


def test_a_folder_without_images_is_rejected(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(BatchError, match=r"has no images. Expected files that end in .png, .jpg"):
        opened(tmp_path)


def test_without_pillow_the_error_names_the_extra(photos: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r'A folder of images requires .*pip install "regtta\[cli\]"'):
        opened()


def test_the_suffixes():
    assert {Path(name).suffix.lower() for name in NAMES} <= set(images.IMAGE_SUFFIXES)
