import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from regtta.errors import BatchError, InvalidFileError
from regtta_bench.data import pictures
from regtta_bench.data.pictures import Pictures, decode, decode_all

RNG = np.random.default_rng(0)


def photo(width, height):
    coarse = Image.fromarray(RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def encoded(image, kind="PNG"):
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("size", [(200, 200), (640, 480), (333, 500)])
def test_decoding_agrees_with_torchvision(size):
    image = photo(*size)
    plain = transforms.Resize((256, 256))(image)
    np.testing.assert_array_equal(decode("x", encoded(image)), np.asarray(plain))
    squared = transforms.Compose([transforms.CenterCrop(min(size)), transforms.Resize((256, 256))])(image)
    np.testing.assert_array_equal(decode("x", encoded(image), square=True), np.asarray(squared))
    stacked = decode_all([(0, "x", encoded(image))], 1, side=224)
    np.testing.assert_array_equal(stacked[0], np.asarray(transforms.CenterCrop(224)(plain)))


def test_grey_and_transparent_images_get_three_channels():
    for mode in ("L", "RGBA", "P"):
        assert decode("x", encoded(photo(30, 30).convert(mode))).shape == (256, 256, 3)


def test_many_images_are_decoded_in_order():
    colours = [Image.new("RGB", (9, 9), (level, 0, 255 - level)) for level in range(150)]
    files = [(position, str(position), encoded(colour)) for position, colour in enumerate(colours)]
    images = decode_all(reversed(files), 150, side=224)
    assert images.shape == (150, 224, 224, 3)
    assert images[:, 100, 100, 0].tolist() == list(range(150))


def png_of_claimed_size(width, height):
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 100) + b"IDAT"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no image at all",
        encoded(photo(200, 200), "JPEG")[:-900],
        encoded(photo(200, 200))[:4000],
        encoded(photo(200, 200))[:30],
        encoded(photo(200, 200), "GIF"),
        png_of_claimed_size(100_000, 100_000),
    ],
    ids=["empty", "text", "cut JPEG", "cut PNG", "cut header", "another format", "a bomb"],
)
def test_the_error_names_an_incomplete_image(raw):
    with pytest.raises(InvalidFileError, match=r"faces/7\.jpg cannot be read as a JPEG or PNG image"):
        decode_all([(0, "faces/7.jpg", raw)], 1, side=224)


def test_too_many_bytes_or_pixels_are_rejected(monkeypatch):
    with pytest.raises(InvalidFileError, match=r"8000×8000; at most 50000000 pixels"):
        decode("x", png_of_claimed_size(8000, 8000))
    monkeypatch.setattr(pictures, "MAX_PICTURE_BYTES", 10)
    with pytest.raises(InvalidFileError, match="x has 11 bytes; at most 10"):
        decode("x", b"0" * 11)


def test_pictures_are_taken_cropped_and_made_a_domain():
    images = RNG.integers(0, 256, (5, 256, 256, 3), dtype=np.uint8)
    whole = Pictures(images, torch.arange(5.0).unsqueeze(1))
    assert len(whole) == 5
    some = whole.take(torch.tensor([4, 1]))
    assert some.targets[:, 0].tolist() == [4, 1]
    np.testing.assert_array_equal(some.images, images[[4, 1]])
    assert whole.take(torch.tensor([True, False, False, False, True])).targets[:, 0].tolist() == [0, 4]
    cropped = whole.centre_crop()
    assert np.shares_memory(cropped.images, images)
    np.testing.assert_array_equal(cropped.images, images[:, 16:240, 16:240])
    domain = cropped.take(torch.tensor([2])).to_domain()
    assert (domain.inputs.shape, domain.inputs.dtype) == ((1, 3, 224, 224), torch.uint8)
    assert domain.inputs[0, 1, 5, 7] == images[2, 21, 23, 1]
    assert domain.targets.tolist() == [[2.0]]
    with pytest.raises(BatchError, match="at least 300×300 to crop, found 256×256"):
        whole.centre_crop(300)
