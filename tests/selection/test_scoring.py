import math
from dataclasses import replace

import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from regtta.errors import BatchError, OptionError
from regtta.selection import (
    CandidateScore,
    OutputCorrection,
    choose,
    fit_correction,
    sample_losses,
    score_candidates,
)
from regtta.selection.scoring import explain


def score(name: str, gain: float, low: float, high: float = 1.0) -> CandidateScore:
    return CandidateScore(name, name, None, 1.0, 1.0, 0.5, gain, low, high, 0.01)


SOURCE = score("source", 0.0, 0.0, 0.0)


def test_scores_are_those_of_scikit_learn_and_the_gain_is_the_difference_of_r2():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(40, 2, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 100.0])
    predictions = {
        name: targets + noise * torch.randn(40, 2, generator=generator) * torch.tensor([1.0, 100.0])
        for name, noise in (("source", 0.8), ("other", 0.3))
    }
    rows = score_candidates(predictions, targets)
    for row in rows:
        given = (targets.numpy(), predictions[row.name].numpy())
        assert row.r2 == pytest.approx(r2_score(*given))
        assert row.rmse == pytest.approx(root_mean_squared_error(*given))
        assert row.mae == pytest.approx(mean_absolute_error(*given))
    assert rows[1].gain == pytest.approx(rows[1].r2 - rows[0].r2)
    assert rows[1].helps
    assert (rows[0].gain, rows[0].low, rows[0].high) == (0.0, 0.0, 0.0)


def test_absolute_losses_are_relative_to_the_mean_absolute_deviation():
    targets = torch.tensor([[0.0], [2.0], [4.0], [10.0]])
    predictions = torch.tensor([[1.0], [2.0], [4.0], [4.0]])
    deviation = (4 + 2 + 0 + 6) / 4
    assert sample_losses(predictions, targets, "absolute").tolist() == pytest.approx(
        [1 / deviation, 0, 0, 6 / deviation]
    )


def test_a_heavy_error_counts_less_by_absolute_errors():
    torch.manual_seed(0)
    targets = torch.randn(200, 1, dtype=torch.float64)
    source = targets + 0.5 * torch.randn(200, 1)
    other = targets + 0.2 * torch.randn(200, 1)
    other[0] += 20
    by_square, by_size = (
        score_candidates({"source": source, "other": other}, targets, loss=loss)[1] for loss in ("squared", "absolute")
    )
    assert by_square.gain < 0 < by_size.gain


def test_the_largest_gain_that_is_shown_is_chosen():
    rows = (SOURCE, score("a", 0.3, 0.1), score("b", 0.5, 0.2), score("c", 0.9, -0.1))
    assert choose(rows).name == "b"
    assert "b has the largest gain" in explain(rows, 0.95)


def test_of_equal_gains_the_earlier_candidate_is_chosen():
    assert choose((SOURCE, score("a", 0.4995, 0.1), score("b", 0.5, 0.2))).name == "a"
    assert choose((SOURCE, score("a", 0.4985, 0.1), score("b", 0.5, 0.2))).name == "b"


def test_a_negligible_gain_is_none_however_certain():
    rows = (SOURCE, score("a", 1e-8, 1e-9))
    assert choose(rows).name == "source"
    assert explain(rows, 0.95) == "No candidate helps by more than 0.001: the largest gain is 1e-08, by a."


def test_without_a_gain_that_is_shown_the_unadapted_model_is_chosen():
    rows = (SOURCE, score("a", 0.3, -0.1), score("b", -0.5, -0.9, -0.2))
    assert choose(rows).name == "source"
    assert explain(rows, 0.9) == (
        "No candidate is shown to help: the largest gain, 0.3 by a, has an interval of -0.1 to 1 at 90 % confidence. "
        "More labels narrow it."
    )
    assert [row.decision for row in rows] == ["not shown to help", "not shown to help", "harms"]


def test_predictions_that_are_not_finite_are_never_chosen():
    targets = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    broken = targets.clone()
    broken[4] = math.nan
    rows = score_candidates({"source": targets * 0, "broken": broken, "good": targets + 0.01 * targets**2}, targets)
    assert [row.decision for row in rows] == ["not shown to help", "harms", "helps"]
    found = rows[1].to_dict()
    assert (found["rmse"], found["gain"], found["low"]) == (None, None, None)


def test_shapes_and_losses_are_checked():
    with pytest.raises(BatchError, match="of 'b'"):
        score_candidates({"a": torch.zeros(9, 1), "b": torch.zeros(9)}, torch.rand(9, 1))
    with pytest.raises(OptionError, match="loss"):
        score_candidates({"a": torch.zeros(9, 1)}, torch.rand(9, 1), loss="cubic")


def test_a_corrected_candidate_is_scored_by_leave_one_out_predictions_and_compared_with_itself():
    generator = torch.Generator().manual_seed(1)
    targets = torch.randn(40, 1, generator=generator, dtype=torch.float64)
    source = targets + 0.4 * torch.randn(40, 1, generator=generator)
    other = 0.5 * targets + 3 + 0.02 * torch.randn(40, 1, generator=generator)
    rows = score_candidates({"source": source, "other": other}, targets, correct="affine")
    assert [row.name for row in rows] == ["source", "other", "source + affine", "other + affine"]
    assert [row.decision for row in rows] == ["not shown to help", "harms", "not shown to help", "helps"]
    corrected, held_out = fit_correction(other, targets, "affine")
    assert rows[3].correction == corrected
    assert rows[3].r2 == pytest.approx(r2_score(targets.numpy(), held_out.numpy()))
    assert (rows[2].correction_low, rows[2].adaptation_low) == (rows[2].low, None)
    assert rows[3].correction_low > rows[3].low > rows[3].adaptation_low > 0
    assert choose(rows).candidate == "other"


def test_a_correction_must_help_its_own_candidate():
    good = CandidateScore("a + offset", "a", OutputCorrection((0.1,), (1.0,)), 1.0, 1.0, 0.6, 0.6, 0.3, 0.9, 0.01, -0.1)
    assert choose((SOURCE, score("a", 0.5, 0.2), good)).name == "a"
    assert choose((SOURCE, score("a", 0.5, 0.2), replace(good, correction_low=0.05))).name == "a + offset"
    assert choose((SOURCE, replace(good, correction_low=0.05, adaptation_low=-0.01))).name == "source"


def test_adaptation_that_adds_nothing_to_the_correction_is_not_recommended():
    generator = torch.Generator().manual_seed(4)
    targets, noise, other = (torch.randn(64, 1, generator=generator, dtype=torch.float64) for _ in range(3))
    predictions = {"source": targets + 3 + 0.5 * noise, "other": targets + 3 + 0.5 * (0.8 * noise + 0.6 * other)}
    rows = score_candidates(predictions, targets, correct="offset")
    assert rows[3].low > 0
    assert rows[3].correction_low > 0
    assert not rows[3].helps
    assert choose(rows).name == "source + offset"


@pytest.mark.parametrize("correct", ["none", "affine"])
@pytest.mark.parametrize("labels", [16, 64])
def test_useless_candidates_are_recommended_in_at_most_the_nominal_share_of_draws(labels, correct):
    # Candidates with correlated errors of equal variance and heavy tails, whose outputs are on average right: the
    # regression of the labels on them has slope 0.8 · 1 / (0.8² + 0.8 · 0.2) = 1, so that no correction helps either.
    generator, wrong, draws = torch.Generator().manual_seed(labels), 0, 400
    for seed in range(draws):
        targets = torch.randn(labels, 1, generator=generator, dtype=torch.float64)
        shared, *own = torch.randn(7, labels, 1, generator=generator, dtype=torch.float64)
        spread = torch.rand(labels, 1, generator=generator).add(0.1).reciprocal()
        outputs = [0.8 * targets + 0.4 * (0.8 * shared + 0.6 * each) for each in own]
        predictions = {str(j): spread * output for j, output in enumerate(outputs)}
        targets = spread * targets
        rows = score_candidates(predictions, targets, correct=correct, resamples=1000, seed=seed)
        wrong += choose(rows).name != "0"
    assert wrong <= 0.05 * draws + 2.33 * math.sqrt(draws * 0.05 * 0.95)


def test_a_clear_gain_is_found_with_32_labels():
    generator, right = torch.Generator().manual_seed(9), 0
    for seed in range(100):
        targets = torch.randn(32, 1, generator=generator, dtype=torch.float64)
        shared, own = (torch.randn(32, 1, generator=generator, dtype=torch.float64) for _ in range(2))
        predictions = {"source": targets + shared, "same": targets + 0.8 * shared + 0.6 * own}
        predictions["better"] = targets + 0.5 * (0.8 * shared + 0.6 * own)
        right += choose(score_candidates(predictions, targets, resamples=1000, seed=seed)).name == "better"
    assert right >= 90
