import pytest

from regtta.errors import OptionError, RegttaError
from regtta_bench.sweep.executors.ray.cluster import Machine, compute_task_resources


def cluster(*offers):
    return [Machine(f"m{i}", str(i), cpus, gpus) for i, (cpus, gpus) in enumerate(offers)]


@pytest.marker.parametrize(
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
    resources = compute_task_resources(cluster(*offers), jobs, device="cpu", small=small)
    assert (resources.cpus, resources.gpus) == (cpus, 0)
    assert resources.max_submitted == (jobs or 256)


@pytest.marker.parametrize(
    ("offers", "jobs", "gpus", "at_once"),
    [
        ([(8, 1), (8, 2)], None, 1, 256),
        ([(8, 1), (8, 2)], 3, 1, 3),
        ([(8, 1), (8, 2)], 4, 0.5, 4),
        ([(8, 1)], 3, 0.3333, 3),
        ([(8, 1), (64, 0)], 8, 0.125, 8),
    ],
)
def test_more_jobs_than_gpus_share_them(offers, jobs, gpus, max_submitted):
    resources = compute_task_resources(cluster(*offers), jobs, device="cuda", small=True)
    assert (resources.cpus, resources.gpus, resources.max_submitted) == (1, gpus, max_submitted)
    held = sum(int(has // gpus) for _, has in offers)
    assert jobs is None or held >= jobs


def test_a_large_cluster_is_kept_busy():
    assert compute_task_resources(cluster(*[(64, 0)] * 10), None, device="cpu", small=True).max_submitted >= 640


def test_who_cannot_take_part_is_known():
    resources = compute_task_resources(cluster((8, 1), (64, 0), (0, 0)), None, device="cuda", small=True)
    assert [resources.fits(machine) for machine in cluster((8, 1), (64, 0), (0, 0))] == [True, False, False]
    resources = compute_task_resources(cluster((8, 1), (64, 0), (0, 0)), 2, device="cpu", small=False)
    assert [resources.fits(machine) for machine in cluster((8, 1), (64, 0), (0, 0))] == [False, True, False]


def test_what_the_cluster_does_not_have_is_an_error_and_no_endless_wait():
    with pytest.raises(RegttaError, match=r"has a GPU available \(m0, m1\)"):
        compute_task_resources(cluster((8, 0), (0, 4)), None, device="cuda", small=True)
    with pytest.raises(RegttaError, match="has a CPU available"):
        compute_task_resources(cluster((0, 0)), None, device="cpu", small=True)


def test_ray_and_not_the_user_says_which_gpu():
    with pytest.raises(OptionError, match="Expected --device cuda with --ray.*found cuda:1"):
        compute_task_resources(cluster((8, 2)), None, device="cuda:1", small=True)
