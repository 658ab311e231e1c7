"""Label mixes, changes of inputs, and the cases made of them."""

import pytest
import torch

from regtta_bench.label_shift.cases import CASE_KINDS, label_mixes, make_cases, one_class_weights, tilted_weights
from regtta_bench.label_shift.label_shift_testbeds import digit_shifts, table_shifts

LABELS = torch.randn(3000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("mean", [-1.5, -0.25, 0.5, 1.0])
def test_a_tilt_has_the_requested_mean_and_shifts_a_gaussian(mean):
    weights = tilted_weights(LABELS, mean)
    assert float(weights @ LABELS) == pytest.approx(mean, abs=1e-9)
    # exp(θt) takes N(0, 1) to N(θ, 1): the spread stays.
    if abs(mean) <= 1:
        assert float(weights @ (LABELS - mean) ** 2) == pytest.approx(1, abs=0.15)


def test_mixes_are_distributions_that_shift_labels_as_named():
    made = label_mixes(LABELS)
    assert all(float(w.sum()) == pytest.approx(1) and bool((w >= 0).all()) for w in made.values())
    means = {name: float(w @ LABELS) for name, w in made.items()}
    assert means["mean +0.5 sd"] == pytest.approx(0.5, abs=1e-9)
    assert means["lowest quarter"] < means["lower half"] < means["lower three quarters"] < 0 < means["upper half"]
    spread = {name: float(w @ (LABELS - means[name]) ** 2) for name, w in made.items()}
    assert spread["narrower"] < 0.7 < 1.3 < spread["wider"]
    assert abs(means["middle half"]) < 0.05
    assert spread["middle half"] < 0.3 < 1.5 < spread["outer half"]


def test_means_beyond_the_labels_are_left_out():
    assert "mean +1.5 sd" not in label_mixes(LABELS.clamp(max=1.2))


def test_one_class_alone():
    weights = one_class_weights(torch.tensor([0.0, 3.0, 3.0, 9.0]), 3)
    assert weights.tolist() == [0, 0.5, 0.5, 0]


def changes(shifts, inputs):
    return {s.name: (s.level, s.apply(inputs, torch.Generator().manual_seed(0))) for s in shifts}


def test_changed_digits_stay_images_and_differ_more_at_higher_levels():
    images = torch.rand(6, 1, 32, 32, generator=torch.Generator().manual_seed(1))
    before = images.clone()
    made = changes(digit_shifts(), images)
    assert torch.equal(images, before)
    assert len(made) == 32
    for _, changed in made.values():
        assert changed.shape == images.shape
        assert 0 <= float(changed.min()) <= float(changed.max()) <= 1
        assert not torch.equal(changed, images)
    assert torch.equal(made["moved right, px 2"][1][..., 2:], images[..., :-2])
    assert float(made["corner covered, px 8"][1][..., :8, :8].abs().max()) == 0
    darkest = {level: float((changed - images).abs().mean()) for n, (level, changed) in made.items() if "dark" in n}
    assert [darkest[level] for level in range(4)] == sorted(darkest.values())


def test_changed_tables():
    table = torch.randn(400, 3, generator=torch.Generator().manual_seed(2))
    made = changes(table_shifts(3), table)
    assert len(made) == 3 * 10 + 15
    offset = made["column 1 offset, sd 0.5"][1] - table
    torch.testing.assert_close(offset.mean(dim=0), torch.tensor([0.0, 0.5, 0.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(made["column 2 scaled 3"][1], table * torch.tensor([1.0, 1.0, 3.0]))
    assert made["column 0 imputed by the mean 1"][1][:, 0].abs().max() == 0
    noise = made["column 0 noise, sd 2"][1] - table
    assert noise.std(dim=0).tolist() == pytest.approx([2, 0, 0], abs=0.2)
    missing = (made["share missing, imputed by the mean 0.3"][1] == 0).float().mean()
    assert float(missing) == pytest.approx(0.3, abs=0.05)


def test_all_kinds_occur_and_labels_shift_only_in_label_kinds(testbed):
    labels = testbed.standardised(testbed.held_out)
    cases = list(make_cases(testbed, (16, 32)))
    assert {case.kind for case in cases} == set(CASE_KINDS)
    for case in cases:
        moved = abs(float(case.weights @ labels - labels.mean()))
        assert (case.shift is not None) == (case.kind in ("covariate", "mixed"))
        assert bool(case.mix) == (case.kind in ("label", "mixed"))
        if not case.mix:
            assert moved < 1e-9
    assert len({(c.inputs, c.mix, c.count, c.draw) for c in cases}) == len(cases)


def test_draws_repeat_and_follow_their_weights(testbed):
    case = next(c for c in make_cases(testbed, (32,)) if c.mix == "lower half")
    rows = case.rows(0)
    assert torch.equal(rows, case.rows(0))
    assert not torch.equal(rows, case.rows(1))
    assert bool((case.weights[rows] > 0).all())
