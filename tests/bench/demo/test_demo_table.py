import statistics

import pytest

from regtta_bench.demo.demo_run import state_conclusions
from regtta_bench.demo.demo_table import Spread


def comparison(study, label: str) -> str:
    """Return the sentence that compares ``label`` with its baseline."""
    return next(sentence for sentence in state_conclusions(study) if sentence.startswith(f"{label} beats"))


def test_spread_is_mean_and_sample_deviation():
    spread = Spread((0.1, 0.4, 0.7))
    assert spread.mean == pytest.approx(0.4)
    assert spread.sd == pytest.approx(statistics.stdev((0.1, 0.4, 0.7)))
    assert spread.text() == "0.400 ±0.300"
    assert spread.text(signed=True) == "+0.400 ±0.300"


def test_one_diverged_source_model_is_never_averaged_away():
    spread = Spread((0.1, None, 0.7))
    assert (spread.mean, spread.sd, spread.diverged) == (None, None, 1)
    assert spread.text() == "diverged 1/3"
    assert spread.direction() is None


@pytest.mark.parametrize(
    ("values", "direction"),
    [
        ((0.1, 0.2), 1),
        ((-0.1, -0.2), -1),
        ((0.1, -0.2), None),
        ((0.0001, -0.0002), 0),
        ((0.1, 0.0001), None),
    ],
)
def test_direction(values, direction):
    assert Spread(values).direction() == direction


def test_differences_are_paired(study_of):
    study = study_of({("noisy", "ssa"): (0.6, 0.2, 0.9), ("noisy", "bn_adapt"): (0.5, 0.1, 0.8)})
    gap = study.difference("noisy", "ssa", "bn_adapt")
    assert gap.values == pytest.approx((0.1, 0.1, 0.1))
    assert gap.sd == pytest.approx(0, abs=1e-12)


def test_conclusions_follow_the_scores(study_of):
    ahead = study_of({("noisy", "ssa_paper"): (0.6, 0.6, 0.6), ("contrast", "ssa_paper"): (0.4, 0.45, 0.35)})
    assert comparison(ahead, "SSA, paper") == (
        "SSA, paper beats BN-adapt on 1 of 2 degradations (noisy +0.100); loses on 1 (contrast −0.100)."
    )
    mixed = study_of({("noisy", "ssa_paper"): (0.6, 0.6, 0.4), ("contrast", "ssa_paper"): (0.6, 0.7, 0.6)})
    assert comparison(mixed, "SSA, paper") == (
        "SSA, paper beats BN-adapt on 1 of 2 degradations (contrast +0.133); is undecided on 1 (noisy +0.033)."
    )


def test_conclusions_compare_debiased_with_debiased(study_of):
    numbers = {("noisy", "ssa"): (0.7,) * 3, ("noisy", "bn_adapt_debiased"): (0.8,) * 3}
    assert "loses on 1 (noisy −0.100)" in comparison(study_of(numbers), "SSA")


def test_conclusions_name_diverged_runs(study_of):
    study = study_of({("noisy", "ssa"): (0.6, None, 0.6), ("clean", "ssa"): (None, 0.5, 0.5)})
    assert "cannot be compared on 1 (noisy)" in comparison(study, "SSA")
    assert "On clean digits a run diverged." in state_conclusions(study)


def test_conclusions_report_the_gain_of_bn_adapt_and_the_harm_on_clean_digits(study_of):
    numbers = {
        ("noisy", "source"): (-1.0,) * 3,
        ("contrast", "source"): (0.2,) * 3,
        ("clean", "ssa"): (0.4,) * 3,
    }
    words = state_conclusions(study_of(numbers))
    assert words[0] == ("BN-adapt takes the mean offline R² over the 2 degradations from −0.400 (Source) to 0.500.")
    assert "On clean digits adapting moves the mean R² by −0.100 to 0.000 offline" in words[-2]


@pytest.mark.parametrize(("count", "said"), [(1, "one source model"), (3, "not significance"), (6, "no test")])
def test_conclusions_claim_no_more_than_the_count_allows(study_of, count, said):
    assert said in state_conclusions(study_of({}, seeds=tuple(range(count))))[-1]
