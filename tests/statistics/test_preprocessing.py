"""Comparison of inputs with those of the source: preprocessing that differs is found, ordinary shifts are not."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.statistics import describe_preprocessing
from regtta_bench.corruptions import CORRUPTIONS, corrupt

MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
NORMALISATIONS = {
    "bytes": lambda x: x * 255,
    "raw": lambda x: x,
    "imagenet": lambda x: (x - MEAN) / STD,
    "half": lambda x: (x - 0.5) / 0.5,
}
SCALES = torch.tensor([40.0, 1.5, 300.0, 0.02, 7.0])
OFFSETS = torch.tensor([35.0, -3.0, 1500.0, 0.5, 0.0])


def photos(rows, seed=0):
    """Return images (N, 3, 32, 32) from 0 to 1: blobs of different brightness and colour."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(rows, 3, 5, 5, generator=generator)
    light = 0.2 + 0.8 * torch.rand(rows, 1, 1, 1, generator=generator)
    return nn.functional.interpolate(coarse, size=32, mode="bilinear") * light


def statistics_of(inputs, columns=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(inputs[0].numel(), 4), nn.Linear(4, 1))
    return regtta.collect(model, inputs.split(100), columns=columns)


def table(rows, seed=0):
    return small_models.table(rows, seed=seed) * SCALES + OFFSETS


# --- images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_ordinary_shifts_of_images_are_accepted(normalisation, rows):
    normalise = NORMALISATIONS[normalisation]
    source = statistics_of(normalise(photos(300)))
    x = photos(rows, seed=1)
    shifted = {
        "none": x,
        "dark": 0.3 * x,
        "very dark": 0.1 * x,
        "bright": (x + 0.4).clamp(max=1),
        "low contrast": 0.15 * x + 0.4,
        "inverted": 1 - x,
        "grey": x.mean(dim=1, keepdim=True).expand_as(x),
    }
    found = {name: describe_preprocessing(normalise(images), source) for name, images in shifted.items()}
    assert found == dict.fromkeys(shifted, "")


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruptions_are_accepted(name):
    images = (photos(32, seed=1) * 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    corrupted = corrupt(np.ascontiguousarray(images), name, severity=5, constants="cifar", seed=0)
    x = torch.from_numpy(corrupted).permute(0, 3, 1, 2).float() / 255
    for normalise in NORMALISATIONS.values():
        assert describe_preprocessing(normalise(x), statistics_of(normalise(photos(300)))) == ""


@pytest.mark.parametrize(
    ("source", "batch", "words"),
    [
        ("raw", "bytes", "on a larger scale than those of the source"),
        ("imagenet", "bytes", "on a larger scale than those of the source"),
        ("half", "bytes", "on a larger scale than those of the source"),
        ("bytes", "raw", "on a smaller scale than those of the source"),
        ("bytes", "imagenet", "seem to be normalised, and those of the source are not"),
        ("raw", "imagenet", "seem to be normalised, and those of the source are not"),
        ("raw", "half", "seem to be normalised, and those of the source are not"),
        ("imagenet", "raw", "seem to be not normalised"),
        ("half", "raw", "seem to be not normalised"),
    ],
)
def test_other_normalisations_of_images_are_found(source, batch, words):
    known = statistics_of(NORMALISATIONS[source](photos(300)))
    inputs = NORMALISATIONS[batch](photos(64, seed=1))
    text = describe_preprocessing(inputs, known)
    assert words in text
    assert f"channel 0 has mean {inputs[:, 0].mean():.3g} (source: {known.input_mean[0]:.3g})" in text
    assert ("divided by 255" in text) == (batch == "bytes")


# --- tables ---------------------------------------------------------------------------------------


def test_ordinary_shifts_of_tables_are_accepted():
    source = statistics_of(table(400))
    x = small_models.table(64, seed=1)
    shifted = {
        "none": x,
        "one standard deviation": x + 1,
        "three standard deviations": x - 3,
        "larger variance": 3 * x,
        "smaller variance": 0.2 * x,
        "a column drifts": x * torch.tensor([1.4, 1, 1, 1.4, 1]) + torch.tensor([0.8, 0, 0, 0.8, 0]),
        "a constant column": x * torch.tensor([0.0, 1, 1, 1, 1]),
    }
    found = {name: describe_preprocessing(rows * SCALES + OFFSETS, source) for name, rows in shifted.items()}
    assert found == dict.fromkeys(shifted, "")


def test_rare_indicators_are_accepted():
    """A column that is nearly always 0 in the source and nearly always 1 in the target is a shift."""
    x = torch.cat([table(400), (torch.arange(400)[:, None] % 100 == 0).float()], dim=1)
    target = torch.cat([table(64, seed=1), (torch.arange(64)[:, None] % 10 != 0).float()], dim=1)
    assert describe_preprocessing(target, statistics_of(x)) == ""


@pytest.mark.parametrize(("factor", "words"), [(1000, "larger"), (100, "larger"), (1e-3, "smaller")])
def test_a_column_in_other_units_is_named(factor, words):
    x = table(64, seed=1)
    x[:, 0] *= factor
    text = describe_preprocessing(x, statistics_of(table(400), columns=["age", "b", "c", "d", "e"]))
    assert text == (
        f"The inputs are on a {words} scale than those of the source: column 'age' has mean {x[:, 0].mean():.3g} "
        f"(source: {table(400)[:, 0].double().mean():.3g}). Preprocess the data as the source data was."
    )


def test_tables_that_are_standardised_on_one_side_only():
    raw, known = table(64, seed=1), table(400)
    standardised = (raw - known.mean(dim=0)) / known.std(dim=0)
    assert "larger scale" in describe_preprocessing(raw, statistics_of((known - OFFSETS) / SCALES))
    assert describe_preprocessing(standardised, statistics_of(known))


def test_columns_in_another_order_are_named():
    source = statistics_of(table(400), columns=["a", "b", "c", "d", "e"])
    x = table(64, seed=1)
    text = describe_preprocessing(x[:, [2, 1, 0, 3, 4]], source)
    assert "seem to be in another order" in text
    assert f"column 'a' with mean {x[:, 2].mean():.3g} (source: {source.input_mean[0]:.3g}) resembles" in text
    assert f"resembles column 'c' of the source ({source.input_mean[2]:.3g})" in text
    assert text.endswith("Restore the order.")
    assert "another order" in describe_preprocessing(x.flip(1), source)


# --- what cannot be compared ----------------------------------------------------------------------


def test_nothing_is_compared_without_moments_or_with_other_columns():
    source = statistics_of(table(400))
    assert describe_preprocessing(torch.randn(64, 7), source) is None
    assert describe_preprocessing(torch.ones(64, 5, dtype=torch.int64), source) is None
    assert describe_preprocessing(torch.full((64, 5), torch.nan), source) is None
    unknown = dataclasses.replace(source, input_mean=torch.empty(0), input_variance=torch.empty(0))
    assert describe_preprocessing(table(64), unknown) is None


def test_samples_that_are_not_finite_are_ignored():
    source, x = statistics_of(table(400)), table(64, seed=1)
    x[3, 2] = torch.inf
    assert describe_preprocessing(x, source) == ""
    x[:, 0] *= 1000
    assert "larger scale" in describe_preprocessing(x, source)
