import pytest
import ray

from regtta_bench.sweep.executors.ray.tasks import ProgressReporter, drain_progress, start_progress_actor

pytestmark = pytest.mark.usefixtures("cluster")


def started_actor():
    """Return a progress actor whose process has started."""
    actor = start_progress_actor()
    ray.get(actor.drain.remote())
    return actor


def test_progress_is_drained_once_and_in_order():
    actor = started_actor()

    def report(actor):
        reporter = ProgressReporter(actor)
        for done in range(1, 4):
            reporter("model", done, 3)
        reporter.flush()

    ray.get(ray.remote(report).remote(actor))
    assert drain_progress(actor) == [("model", 1, 3), ("model", 2, 3), ("model", 3, 3)]
    assert drain_progress(actor) == []


def test_a_lost_actor_does_not_block():
    actor = started_actor()
    ray.kill(actor)
    assert drain_progress(actor) == []
