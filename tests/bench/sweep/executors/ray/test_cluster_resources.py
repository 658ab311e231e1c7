import pytest

from regtta.errors import OptionError, RegttaError
from regtta_bench.sweep.executors.ray.cluster import Machine, compute_task_resources


def cluster(*offers):
    return [Machine(f"m{i}", str(i), cpus, gpus) for i, (cpus, gpus) in enumerate(offers)]


@pytest.mark.parametrize(
    ("offers", "jobs", "small", "cpus"),
    [
        ([(16, 0), (8, 0)], None, False, 1),  # one CPU per task
        ([(16, 0), (8, 0)], 4, False, 6),  # all CPUs, divided evenly
        ([(16, 0), (8, 0)], 1, False, 16),  # no more than a machine has
        ([(16, 0), (8, 0)], 100, False, 1),
        ([(16, 0), (8, 0)], 4, True, 1),  # a second CPU would be idle
        ([(2.5, 0)], 1, False, 2),
    ],
)
def test_cpus_are_divided_among_the_jobs(offers, jobs, small, cpus):
    resources = compute_task_resources(cluster(*offers), jobs, device="cpu", small=small)
    assert (resources.cpus, resources.gpus) == (cpus, 0)
    assert resources.max_submitted == (jobs or 256)


@pytest.mark.parametrize(
    ("offers", "jobs", "gpus", "max_submitted"),
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


def test_a_large_cluster_gets_enough_tasks():
    assert compute_task_resources(cluster(*[(64, 0)] * 10), None, device="cpu", small=True).max_submitted >= 640


def test_machines_without_resources_do_not_fit():
    resources = compute_task_resources(cluster((8, 1), (64, 0), (0, 0)), None, device="cuda", small=True)
    assert [resources.fits(machine) for machine in cluster((8, 1), (64, 0), (0, 0))] == [True, False, False]
    resources = compute_task_resources(cluster((8, 1), (64, 0), (0, 0)), 2, device="cpu", small=False)
    assert [resources.fits(machine) for machine in cluster((8, 1), (64, 0), (0, 0))] == [False, True, False]


def test_missing_resources_raise_instead_of_waiting():
    with pytest.raises(RegttaError, match=r"has a GPU available \(m0, m1\)"):
        compute_task_resources(cluster((8, 0), (0, 4)), None, device="cuda", small=True)
    with pytest.raises(RegttaError, match="has a CPU available"):
        compute_task_resources(cluster((0, 0)), None, device="cpu", small=True)


def test_a_particular_gpu_raises():
    with pytest.raises(OptionError, match="Expected --device cuda with --ray.*found cuda:1"):
        compute_task_resources(cluster((8, 2)), None, device="cuda:1", small=True)
