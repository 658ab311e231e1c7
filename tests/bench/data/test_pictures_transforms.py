import numpy as np
import pytest
import torch
from torchvision.transforms import functional
from torchvision.transforms.v2 import Normalize

from regtta.errors import BatchError
from regtta_bench.data.pictures import adjust_colours, colour_jitter, crop_and_flip, normalise


@pytest.fixture
def images():
    return torch.randint(256, (6, 3, 40, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_normalising_is_torchvisions(images):
    expected = Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])(images.float() / 255)
    torch.testing.assert_close(normalise(images), expected)


def test_each_crop_is_a_window_of_its_image_or_the_mirror_image_of_one(images):
    crops = crop_and_flip(images, torch.Generator().manual_seed(1), side=32)
    assert crops.shape == (6, 3, 32, 32)
    assert crops.dtype == torch.uint8
    for crop, image in zip(crops, images, strict=True):
        windows = image.unfold(1, 32, 1).unfold(2, 32, 1)  # (3, 9, 17, 32, 32)
        found = [(windows == view[:, None, None]).all(-1).all(-1).all(0).any() for view in (crop, crop.flip(-1))]
        assert sum(map(bool, found)) == 1


def test_crops_reach_every_corner_and_half_are_mirrored():
    ramp = torch.arange(36, dtype=torch.uint8).expand(3, 36, 36)
    rows = torch.stack([ramp, ramp.transpose(1, 2)]).repeat_interleave(500, 0)
    crops = crop_and_flip(rows, torch.Generator().manual_seed(0), side=32)
    left = crops[:500, 0, 0].amin(-1)
    top = crops[500:, 0, 0, 0]
    assert set(left.tolist()) == set(top.tolist()) == {0, 1, 2, 3, 4}
    mirrored = (crops[:500, 0, 0, 0] > crops[:500, 0, 0, 1]).float().mean()
    assert 0.42 < mirrored < 0.58


def test_crops_and_jitter_repeat_for_the_same_seed_and_only_for_it(images):
    for change in (lambda g: crop_and_flip(images, g, side=32), lambda g: colour_jitter(images, g)):
        first, same, different = (change(torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
        assert torch.equal(first, same)
        assert not torch.equal(first, different)


def test_colours_are_adjusted_as_torchvision_does(images):
    b, c, s = torch.rand(3, len(images), generator=torch.Generator().manual_seed(0)) * 0.6 + 0.7
    adjusted = adjust_colours(images, b, c, s)
    assert adjusted.dtype == torch.uint8
    for index, image in enumerate(images):
        expected = functional.adjust_brightness(image.float() / 255, b[index].item())
        expected = functional.adjust_contrast(expected, c[index].item())
        expected = functional.adjust_saturation(expected, s[index].item())
        np.testing.assert_allclose(adjusted[index].numpy(), expected.numpy() * 255, atol=0.5001)


def test_the_jitter_stays_within_its_strength():
    grey = torch.full((2000, 3, 2, 2), 100, dtype=torch.uint8)
    # Contrast and saturation leave an even grey as it is: what is left is brightness.
    levels = colour_jitter(grey, torch.Generator().manual_seed(0))[:, 0, 0, 0]
    assert 70 <= levels.min() <= 71
    assert 129 <= levels.max() <= 130
    assert abs(levels.float().mean().item() - 100) < 1.5
    assert torch.equal(colour_jitter(grey, torch.Generator(), strength=0.0), grey)


def test_inputs_other_than_uint8_image_batches_are_rejected(images):
    generator = torch.Generator()
    for wrong in (images.float(), images[0], images[:, :1]):
        for change in (normalise, lambda x: crop_and_flip(x, generator, 8), lambda x: colour_jitter(x, generator)):
            with pytest.raises(BatchError, match=r"\(B, 3, H, W\) of type uint8"):
                change(wrong)
    with pytest.raises(BatchError, match="at least 41×41 to crop, found 40×48"):
        crop_and_flip(images, generator, 41)
