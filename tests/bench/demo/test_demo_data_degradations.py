import math

import pytest
import torch

from regtta_bench.demo.demo_data import (
    DEGRADATIONS,
    Blur,
    Brighten,
    Contrast,
    Darken,
    Noise,
    make_generator,
    uci_digits,
)


def ramp() -> torch.Tensor:
    """Return images (2, 1, 32, 32): a ramp from black to white, and one of half the range."""
    image = torch.linspace(0, 1, 32 * 32).reshape(1, 1, 32, 32)
    return torch.cat([image, image / 2])


def test_darken_multiplies():
    assert torch.equal(Darken(0.25).apply(ramp(), make_generator(0, "")), ramp() * 0.25)


def test_brighten_adds_and_saturates():
    brightened = Brighten(0.6).apply(ramp(), make_generator(0, ""))
    assert torch.equal(brightened, torch.minimum(ramp() + 0.6, torch.tensor(1.0)))
    assert brightened.max() == 1


def test_contrast_keeps_the_mean_of_each_image_and_shrinks_its_deviation():
    reduced = Contrast(0.15).apply(ramp(), make_generator(0, ""))
    torch.testing.assert_close(reduced.mean(dim=(1, 2, 3)), torch.tensor([0.5, 0.25]))
    torch.testing.assert_close(reduced.std(dim=(1, 2, 3)), 0.15 * ramp().std(dim=(1, 2, 3)))


def test_blur_preserves_a_flat_field_to_its_edges():
    flat = torch.full((1, 1, 32, 32), 0.4)
    torch.testing.assert_close(Blur(3.0).apply(flat, make_generator(0, "")), flat)


def test_blur_spreads_an_impulse_into_a_gaussian():
    impulse = torch.zeros(1, 1, 33, 33)
    impulse[0, 0, 16, 16] = 1
    spread = Blur(2.0).apply(impulse, make_generator(0, ""))[0, 0]
    assert spread.sum().item() == pytest.approx(1, abs=1e-5)
    assert spread[16, 16].item() == pytest.approx(1 / (2 * math.pi * 4), rel=0.02)
    # Two pixels away is one standard deviation, in rows and in columns.
    assert (spread[16, 18] / spread[16, 16]).item() == pytest.approx(math.exp(-0.5), rel=1e-4)
    assert (spread[18, 16] / spread[16, 16]).item() == pytest.approx(math.exp(-0.5), rel=1e-4)


def test_noise_has_the_requested_standard_deviation():
    grey = torch.full((50, 1, 32, 32), 0.5)
    noise = Noise(0.1).apply(grey, make_generator(0, "noisy")) - grey
    # 51,200 draws: their sd is known to 0.1 / √102,400, taken four times here.
    assert noise.std().item() == pytest.approx(0.1, abs=4 * 0.1 / math.sqrt(102_400))
    assert noise.mean().item() == pytest.approx(0, abs=4 * 0.1 / math.sqrt(51_200))


def test_noise_is_seeded():
    first, again, other = (Noise(0.3).apply(ramp(), make_generator(seed, "noisy")) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_every_degradation_changes_images_within_the_range_of_a_scanner(name):
    images = uci_digits().inputs[:50]
    before = images.clone()
    degraded = DEGRADATIONS[name].apply(images, make_generator(0, name))
    assert torch.equal(images, before)
    assert degraded.shape == images.shape
    assert degraded.min() >= 0
    assert degraded.max() <= 1
    assert (degraded - images).abs().mean() > 0.05
    assert any(character.isdigit() for character in DEGRADATIONS[name].setting)
