import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from helpers import small_models
from regtta.errors import BatchError
from regtta_bench.data.pictures import colour_jitter, crop_and_flip, normalise
from regtta_bench.training import Recipe, eval_transform, train_transform
from regtta_bench.training.recipe import random_crop


def photographs(count=5, side=40):
    return torch.randint(256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def test_a_default_recipe_leaves_inputs_unchanged():
    table = small_models.table(4)
    assert eval_transform(table, Recipe()) is table
    assert train_transform(table, Recipe(), torch.Generator()) is table


def test_the_plain_view_of_photographs_is_their_centre_normalised_as_pillow_and_numpy_have_it():
    images = photographs()
    seen = eval_transform(images, Recipe(photo_side=32))
    image = Image.fromarray(images[2].permute(1, 2, 0).numpy()).crop((4, 4, 36, 36))
    expected = (np.asarray(image) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(seen[2].permute(1, 2, 0), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(BatchError, match="at least 41×41 to crop, found 40×40"):
        eval_transform(images, Recipe(photo_side=41))


@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_the_training_view_draws_crops_then_colours_then_normalises(jitter):
    images = photographs()
    seen = train_transform(images, Recipe(photo_side=32, colour_jitter=jitter), torch.Generator().manual_seed(8))
    generator = torch.Generator().manual_seed(8)
    expected = crop_and_flip(images, generator, 32)
    if jitter:
        expected = colour_jitter(expected, generator, jitter)
    assert torch.equal(seen, normalise(expected))
    assert not torch.equal(seen, train_transform(images, Recipe(photo_side=32, colour_jitter=0.3), generator))


def test_resizing_agrees_with_pillow_in_both_views():
    images = small_models.images(2)
    for view in (
        eval_transform(images, Recipe(resized=48)),
        train_transform(images, Recipe(resized=48), torch.Generator()),
    ):
        for image, seen in zip(images, view, strict=True):
            channel = Image.fromarray(image[1].numpy(), mode=None).resize((48, 48), Image.Resampling.BILINEAR)
            np.testing.assert_allclose(seen[1], np.asarray(channel), atol=1e-5)


def test_crops_are_windows_of_the_padded_image():
    images = torch.rand(40, 3, 8, 8)
    cropped = random_crop(images, 2, torch.Generator().manual_seed(0))
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    corners = set()
    for before, after in zip(padded, cropped, strict=True):
        found = [(i, j) for i in range(5) for j in range(5) if torch.equal(before[:, i : i + 8, j : j + 8], after)]
        assert len(found) == 1
        corners.add(found[0])
    assert len(corners) > 12
    assert {i for i, _ in corners} == {j for _, j in corners} == set(range(5))
