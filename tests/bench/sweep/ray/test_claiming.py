import pytest

from regtta.errors import OptionError, RegttaError
from regtta_bench.sweep.executors.ray.cluster import Machine, claim_of


def cluster(*offers):
    return [Machine(f"m{i}", str(i), cpus, gpus) for i, (cpus, gpus) in enumerate(offers)]


@pytest.mark.parametrize(
    ("offers", "jobs", "small", "cpus"),
    [
        ([(16, 0), (8, 0)], None, False, 1),  # a task a CPU
        ([(16, 0), (8, 0)], 4, False, 6),  # all CPUs, dealt out
        ([(16, 0), (8, 0)], 1, False, 16),  # no more than a machine has
        ([(16, 0), (8, 0)], 100, False, 1),
        ([(16, 0), (8, 0)], 4, True, 1),  # a second one would only wait
        ([(2.5, 0)], 1, False, 2),
    ],
)
def test_the_cpus_are_dealt_out_among_the_jobs(offers, jobs, small, cpus):
    claim = claim_of(cluster(*offers), jobs, device="cpu", small=small)
    assert (claim.cpus, claim.gpus) == (cpus, 0)
    assert claim.at_once == (jobs or 256)


@pytest.mark.parametrize(
    ("offers", "jobs", "gpus", "at_once"),
    [
        ([(8, 1), (8, 2)], None, 1, 256),
        ([(8, 1), (8, 2)], 3, 1, 3),
        ([(8, 1), (8, 2)], 4, 0.5, 4),
        ([(8, 1)], 3, 0.3333, 3),
        ([(8, 1), (64, 0)], 8, 0.125, 8),
    ],
)
def test_more_jobs_than_gpus_share_them(offers, jobs, gpus, at_once):
    claim = claim_of(cluster(*offers), jobs, device="cuda", small=True)
    assert (claim.cpus, claim.gpus, claim.at_once) == (1, gpus, at_once)
    held = sum(int(has // gpus) for _, has in offers)
    assert jobs is None or held >= jobs


def test_a_large_cluster_is_kept_busy():
    assert claim_of(cluster(*[(64, 0)] * 10), None, device="cpu", small=True).at_once >= 640


def test_who_cannot_take_part_is_known():
    claim = claim_of(cluster((8, 1), (64, 0), (0, 0)), None, device="cuda", small=True)
    assert [claim.fits(machine) for machine in cluster((8, 1), (64, 0), (0, 0))] == [True, False, False]
    claim = claim_of(cluster((8, 1), (64, 0), (0, 0)), 2, device="cpu", small=False)
    assert [claim.fits(machine) for machine in cluster((8, 1), (64, 0), (0, 0))] == [False, True, False]


def test_what_the_cluster_does_not_have_is_an_error_and_no_endless_wait():
    with pytest.raises(RegttaError, match=r"has a GPU available \(m0, m1\)"):
        claim_of(cluster((8, 0), (0, 4)), None, device="cuda", small=True)
    with pytest.raises(RegttaError, match="has a CPU available"):
        claim_of(cluster((0, 0)), None, device="cpu", small=True)


def test_ray_and_not_the_user_says_which_gpu():
    with pytest.raises(OptionError, match="Expected --device cuda with --ray.*found cuda:1"):
        claim_of(cluster((8, 2)), None, device="cuda:1", small=True)
