import pytest
import torch
from sklearn.datasets import load_digits

from regtta.errors import OptionError
from regtta_bench.data import Domain
from regtta_bench.demo.demo_data import derive_seed, make_generator, split_digits, uci_digits
from regtta_bench.training.recipe import global_seed


def numbered(count: int) -> Domain:
    """Return digits whose labels are their indices, which identifies each."""
    return Domain(torch.zeros(count, 1, 2, 2), torch.arange(count).float())


def test_digits_are_scaled_images_with_their_labels():
    digits, raw = uci_digits(), load_digits()
    assert digits.inputs.shape == (1797, 1, 32, 32)
    assert digits.inputs.min() == 0
    assert digits.inputs.max() == 1
    assert digits.targets.tolist() == raw.target.tolist()
    # Four times as fine: the mean over the inner pixels of a flat-sampled image stays close.
    assert digits.inputs.mean().item() == pytest.approx(raw.images.mean() / 16, abs=0.02)


def test_split_is_disjoint_and_complete():
    parts = split_digits(numbered(20), seed=0, source=12)
    source, target = set(parts.source.targets.tolist()), set(parts.target.targets.tolist())
    assert (len(source), len(target)) == (12, 8)
    assert source | target == set(range(20))


def test_split_depends_on_the_seed_and_on_nothing_else():
    first = split_digits(numbered(50), seed=5, source=30)
    torch.rand(7)
    again = split_digits(numbered(50), seed=5, source=30)
    other = split_digits(numbered(50), seed=6, source=30)
    assert torch.equal(first.target.targets, again.target.targets)
    assert not torch.equal(first.target.targets, other.target.targets)


def test_split_takes_the_requested_number_of_targets():
    parts = split_digits(numbered(50), seed=5, source=30, target=4)
    assert torch.equal(parts.target.targets, split_digits(numbered(50), seed=5, source=30).target.targets[:4])


@pytest.mark.parametrize(("source", "target"), [(0, None), (50, None), (40, 11), (40, 0)])
def test_split_rejects_counts_that_do_not_fit(source, target):
    with pytest.raises(OptionError, match="sum of at most 50"):
        split_digits(numbered(50), seed=0, source=source, target=target)


def test_generators_differ_by_seed_and_purpose():
    draws = {
        torch.rand(1, generator=make_generator(seed, purpose)).item() for seed in (0, 1, -1) for purpose in ("a", "b")
    }
    assert len(draws) == 6


def test_global_generator_is_put_back():
    before = torch.get_rng_state()
    with global_seed(derive_seed(0, "weights")):
        inside = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with global_seed(derive_seed(0, "weights")):
        assert torch.equal(torch.rand(3), inside)
