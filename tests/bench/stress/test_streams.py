"""Properties of every kind of stream, for any domains, length and seed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regtta.errors import OptionError
from regtta_bench.data import Domain
from regtta_bench.stress.streams import BLOCK, STREAM_KINDS, DomainPool, draw_stream


def domain(number, rows, outputs):
    """Return inputs (domain, row), which identify each sample, and unordered labels with ties."""
    inputs = torch.stack([torch.full((rows,), float(number)), torch.arange(float(rows))], dim=1)
    labels = torch.rand(rows, max(outputs, 1), generator=torch.Generator().manual_seed(number)).mul(20).round()
    return Domain(inputs, labels if outputs else labels[:, 0])


@st.composite
def pools(draw_):
    outputs = draw_(st.sampled_from([0, 1, 3]))
    paired = draw_(st.booleans())
    sizes = draw_(st.lists(st.integers(9, 300), min_size=3, max_size=3))
    if paired:
        sizes = sizes[:1] * 3
    clean, *shifted = (domain(number, rows, outputs) for number, rows in enumerate(sizes))
    if paired:  # row i is the same object in every domain
        shifted = [Domain(one.inputs, clean.targets) for one in shifted]
    return DomainPool(clean, dict(zip(("first", "second"), shifted, strict=True)), paired)


def extract_inputs(stream, size=7):
    return torch.cat(list(stream.batches(size)))


def one_label(stream):
    return stream.targets.reshape(len(stream), -1).mean(dim=1)


def drawn(kind, pool, part="second", length=0, seed=0):
    return draw_stream(kind, pool, part, length, torch.Generator().manual_seed(seed))


@settings(max_examples=60, deadline=None)
@given(pools(), st.sampled_from(sorted(STREAM_KINDS)), st.integers(0, 200), st.integers(0, 5))
def test_samples_are_unique_and_from_the_allowed_domains(pool, kind, length, seed):
    stream = drawn(kind, pool, length=length, seed=seed)
    inputs = extract_inputs(stream)
    allowed = {"shifted": {2}, "clean": {0}, "both": {0, 2}, "all": {0, 1, 2}}[STREAM_KINDS[kind].which]
    assert set(inputs[:, 0].int().tolist()) <= allowed
    rows = inputs[:, 1].tolist() if pool.paired else [tuple(pair) for pair in inputs.tolist()]
    assert len(set(rows)) == len(rows)
    sizes = [len(pool.clean), len(pool.shifted["first"]), len(pool.shifted["second"])]
    smallest = min(sizes[number] for number in allowed)
    assert len(stream) == min(length or smallest, smallest)


@settings(max_examples=30, deadline=None)
@given(pools(), st.sampled_from(sorted(STREAM_KINDS)))
def test_labels_travel_with_their_samples(pool, kind):
    stream = drawn(kind, pool)
    domains = [pool.clean, *pool.shifted.values()]
    for (number, row), label in zip(extract_inputs(stream).int().tolist(), stream.targets, strict=True):
        assert torch.equal(label, domains[number].targets[row])


@settings(max_examples=30, deadline=None)
@given(pools(), st.sampled_from(sorted(STREAM_KINDS)), st.integers(0, 100))
def test_the_same_seed_gives_the_same_stream(pool, kind, seed):
    first, again = (extract_inputs(drawn(kind, pool, seed=seed), size) for size in (7, 64))
    assert torch.equal(first, again)


@settings(max_examples=30, deadline=None)
@given(pools(), st.sampled_from(["sorted", "unshifted_sorted"]))
def test_sorted_is_sorted_by_the_mean_label(pool, kind):
    labels = one_label(drawn(kind, pool))
    assert bool((labels.diff() >= 0).all())


@settings(max_examples=30, deadline=None)
@given(pools())
def test_back_has_three_thirds(pool):
    shifted = (extract_inputs(drawn("back", pool))[:, 0] == 2).tolist()
    begin, end = shifted.index(True), len(shifted) - shifted[::-1].index(True)
    assert all(shifted[begin:end])
    for third in (begin, end - begin, len(shifted) - end):
        assert abs(third - len(shifted) / 3) < 1


@settings(max_examples=30, deadline=None)
@given(pools())
def test_alternating_changes_sides_every_64_samples(pool):
    origins = extract_inputs(drawn("alternating", pool))[:, 0]
    for place, block in enumerate(origins.split(BLOCK)):
        assert set(block.tolist()) == {2.0 if place % 2 else 0.0}


def whole(rows=9000):
    return DomainPool(domain(0, rows, 1), {"first": domain(1, rows, 1), "second": domain(2, rows, 1)}, paired=True)


def test_the_share_of_shifted_samples_rises_evenly():
    shifted = (extract_inputs(drawn("gradual", whole()), 1000)[:, 0] == 2).float()
    shares = [float(part.mean()) for part in shifted.split(1800)]
    assert shares == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=0.04)  # four standard deviations of a share


def test_mixed_takes_every_domain_alike():
    origins = extract_inputs(drawn("mixed", whole()), 1000)[:, 0]
    assert [float((origins == number).float().mean()) for number in range(3)] == pytest.approx([1 / 3] * 3, abs=0.02)


def test_bursts_are_runs_of_a_sorted_stream_of_about_48():
    labels = one_label(drawn("bursts", whole()))
    runs = 1 + int((labels.diff() < 0).sum())
    # Sorted runs that follow each other by chance look like one, so that fewer are seen than there are.
    assert 9000 / 48 / 3 < runs < 9000 / 48 * 1.3
    assert torch.equal(labels.sort().values, one_label(drawn("sorted", whole())))
    assert not torch.equal(labels, labels.sort().values)


def test_samples_within_a_label_and_orders_of_streams_follow_the_seed():
    for kind in STREAM_KINDS:
        assert not torch.equal(*(extract_inputs(drawn(kind, whole(600), seed=seed)) for seed in (0, 1)))


def test_redrawn_streams_are_clean_and_of_the_requested_length():
    stream = drawn("redrawn", whole(50), length=1000)
    inputs = extract_inputs(stream)
    assert len(stream) == 1000
    assert set(inputs[:, 0].tolist()) == {0.0}
    assert len(set(inputs[:, 1].tolist())) == 50  # each of 50 is missed with probability 1e-9


@pytest.mark.parametrize(
    ("kind", "part", "said"), [("sideways", "first", "the kind of stream"), ("iid", "third", "the part")]
)
def test_unknown_kinds_and_parts_are_rejected(kind, part, said):
    with pytest.raises(OptionError, match=said):
        drawn(kind, whole(20), part)


def test_an_empty_domain_is_rejected():
    nothing = Domain(torch.empty(0, 2), torch.empty(0, 1))
    with pytest.raises(OptionError, match="found an empty one"):
        drawn("unshifted", DomainPool(nothing, {}))
