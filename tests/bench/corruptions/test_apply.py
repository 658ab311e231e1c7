"""Properties of every corruption: shapes, seeds, splits, errors, and the order of severities."""

from itertools import pairwise

import numpy as np
import pytest

from regtta.errors import BatchError, OptionError
from regtta_bench.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from regtta_bench.corruptions.apply import image_generator
from regtta_bench.corruptions.constants import to_bytes, to_floats

DETERMINISTIC = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}
SETS = ("imagenet", "cifar")

every = pytest.mark.parametrize("name", CORRUPTIONS)
both = pytest.mark.parametrize("constants", SETS)


@pytest.fixture(scope="module")
def images(photographs):
    return photographs(40)[:, :, :33]  # neither square nor a power of two


@both
@every
def test_shape_and_dtype_stay_and_the_input_is_left_alone(images, name, constants):
    before = images.copy()
    result = corrupt(images, name, constants=constants, seed=0)
    assert result.shape == images.shape
    assert result.dtype == np.uint8
    assert not np.array_equal(result, images)
    assert np.array_equal(images, before)
    single = corrupt(images[0], name, constants=constants, seed=0)
    assert single.shape == images.shape[1:]
    assert np.array_equal(single, result[0])


@both
@every
def test_results_depend_on_the_seed(images, name, constants):
    first, again, other = (corrupt(images, name, constants=constants, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    for one, two in zip(first, other, strict=True):
        assert np.array_equal(one, two) == (name in DETERMINISTIC)


@both
@every
def test_neither_order_nor_split_nor_subset_matters(images, name, constants):
    whole = corrupt(images, name, constants=constants, seed=1)
    order = [4, 0, 5, 2]
    assert np.array_equal(corrupt(images[order], name, constants=constants, seed=1, indices=order), whole[order])
    parts = [
        corrupt(images[part], name, constants=constants, seed=1, indices=range(6)[part])
        for part in (slice(0, 1), slice(1, 4), slice(4, 6))
    ]
    assert np.array_equal(np.concatenate(parts), whole)


@every
def test_large_images_and_large_batches_are_worked_on_in_parts(photographs, name):
    few, many = photographs(224)[:3], np.concatenate([photographs(32)] * 8)
    whole = corrupt(few, name, seed=2)
    assert np.array_equal(corrupt(few[2], name, seed=2, indices=[2]), whole[2])
    whole = corrupt(many, name, constants="cifar", seed=2)  # more than are worked on at once
    assert np.array_equal(corrupt(many[-2:], name, constants="cifar", seed=2, indices=[46, 47]), whole[-2:])


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - DETERMINISTIC))
def test_equal_images_with_different_indices_differ(images, name):
    pair = np.stack([images[0], images[0]])
    one, two = corrupt(pair, name, seed=0)
    assert not np.array_equal(one, two)
    same = corrupt(pair, name, seed=0, indices=[7, 7])
    assert np.array_equal(same[0], same[1])


def test_every_argument_of_the_generator_counts():
    draws = [image_generator(*key).random() for key in ((0, "fog", 5, 0), (1, "fog", 5, 0), (0, "snow", 5, 0))]
    draws += [
        image_generator(*key).random()
        for key in ((0, "fog", 4, 0), (0, "fog", 5, 1), (-1, "fog", 5, 0), (2**70, "fog", 5, 0))
    ]
    assert len(set(draws)) == len(draws)
    assert image_generator(1, "fog", 5, 11).random() != image_generator(11, "fog", 5, 1).random()


@every
def test_an_empty_batch_stays_empty_and_views_are_read(images, name):
    assert corrupt(images[:0], name, seed=0).shape == (0, 40, 33, 3)
    view = images[:2, ::-1]
    assert np.array_equal(corrupt(view, name, seed=0), corrupt(view.copy(), name, seed=0))


def test_bytes_survive_the_way_to_floats_and_back():
    levels = np.arange(256, dtype=np.uint8)
    assert np.array_equal(to_bytes(to_floats(levels)), levels)
    assert to_bytes(np.float32([0.999, 0.9999, 1.5, -0.5])).tolist() == [254, 254, 255, 0]  # truncated, not rounded


def unordered(name, constants):
    """The severities after which the distortion need not grow, by the published constants themselves."""
    return {
        # The flakes of severity 3 need 0.9 to be seen where those of severity 2 needed 0.5: fewer are.
        ("snow", "imagenet"): {2},
        # Severities 3 and 4 have the same amount; only the decay changes, which makes fog rougher, not denser.
        ("fog", "imagenet"): {3},
        # The same sigma, and radii that cut nothing off: the same blur at other angles.
        ("motion_blur", "cifar"): {3},
        # 30 and 28 of 32 pixels: which pixels nearest neighbour doubles matters more than how many are left.
        ("pixelate", "cifar"): {1},
        # Its own test below.
        ("elastic_transform", "imagenet"): {1, 2, 3, 4},
        ("elastic_transform", "cifar"): {1, 2, 3, 4},
    }.get((name, constants), set())


def distortions(images, name, constants):
    results = [corrupt(images, name, severity=s, constants=constants, seed=0) for s in SEVERITIES]
    return [float(np.mean((result.astype(float) - images) ** 2)) for result in results]


@both
@every
def test_distortion_grows_with_severity(photographs, name, constants):
    images = photographs(224)[::3] if constants == "imagenet" else np.concatenate([photographs(32)] * 8)
    errors = distortions(images, name, constants)
    assert errors[0] > 1
    for severity, (lower, higher) in enumerate(pairwise(errors), start=1):
        if severity not in unordered(name, constants):
            assert lower < higher, f"severity {severity + 1} distorts less than {severity}: {errors}"


def test_elastic_transform_is_not_ordered_by_its_constants(photographs):
    """The affine shift falls while the displacement rises: 24, 49, 5, 5, 5 pixels of 244, and 2.6 down to 1 of 32."""
    errors = distortions(photographs(224), "elastic_transform", "imagenet")
    assert min(errors[:2]) > 2 * max(errors[2:])
    errors = distortions(np.concatenate([photographs(32)] * 8), "elastic_transform", "cifar")
    assert errors == sorted(errors, reverse=True)


GOOD = np.zeros((2, 32, 32, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "defocus"}, "Did you mean 'defocus_blur'"),
        ({"name": "frost"}, "one of .*'fog'"),
        ({"name": ["fog"]}, "Expected name"),
        ({"severity": 0}, r"one of \[1, 2, 3, 4, 5\], found 0"),
        ({"severity": 6}, "found 6"),
        ({"severity": 2.0}, "severity to be a whole number"),
        ({"severity": True}, "severity to be a whole number"),
        ({"constants": "cifar10"}, "Did you mean 'cifar'"),
        ({"seed": 0.5}, "seed to be a whole number"),
        ({"seed": None}, "seed to be a whole number"),
        ({"indices": [1]}, "1 indices for 2 images"),
        ({"indices": [1, 2.5]}, "each of indices to be a whole number"),
    ],
)
def test_invalid_options(arguments, message):
    with pytest.raises(OptionError, match=message):
        corrupt(**{"images": GOOD, "name": "fog", "seed": 0} | arguments)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (GOOD.astype(np.float32) / 255, "uint8, found float32"),
        ([[0]], "uint8, found list"),
        (GOOD.transpose(0, 3, 1, 2), r"found \(2, 3, 32, 32\)"),
        (GOOD[0, 0], r"found \(32, 3\)"),
        (GOOD[..., :1], r"found \(2, 32, 32, 1\)"),
        (GOOD[:, :31], "at least 32×32, found 31×32"),
    ],
)
def test_invalid_images(images, message):
    with pytest.raises(BatchError, match=message):
        corrupt(images, "fog", seed=0)


def test_integers_of_numpy_are_accepted():
    expected = corrupt(GOOD, "gaussian_noise", severity=2, seed=3, indices=[4, 5])
    found = corrupt(GOOD, "gaussian_noise", severity=np.int64(2), seed=np.uint8(3), indices=np.array([4, 5]))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_layout_in_memory_does_not_matter(name):
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 40, 3), dtype=np.uint8)
    turned = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    assert not turned.flags.c_contiguous
    np.testing.assert_array_equal(corrupt(turned, name, seed=3), corrupt(images, name, seed=3))
