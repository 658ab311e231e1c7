import pytest
import ray

from regtta_bench.sweep.executors.ray.tasks import ProgressInbox, ProgressReporter

pytestmark = pytest.mark.usefixtures("cluster")


def started_inbox():
    """Return an inbox whose actor has started."""
    inbox = ProgressInbox()
    ray.get(inbox.actor.drain.remote())
    return inbox


def report(actor):
    reporter = ProgressReporter(actor)
    for done in range(1, 4):
        reporter("model", done, 3)
    reporter.flush()


REPORTS = [("model", 1, 3), ("model", 2, 3), ("model", 3, 3)]


def test_progress_is_drained_once_and_in_order():
    inbox = started_inbox()
    ray.get(ray.remote(report).remote(inbox.actor))
    assert inbox.drain() == REPORTS
    assert inbox.drain() == []


def test_reports_are_kept_until_a_slow_actor_answers():
    inbox = ProgressInbox()
    first = inbox.drain(0)  # the process of the actor has not started
    ray.get(ray.remote(report).remote(inbox.actor))
    assert first + inbox.drain(60) + inbox.drain(60) == REPORTS


def test_a_lost_actor_does_not_block():
    inbox = started_inbox()
    ray.kill(inbox.actor)
    assert inbox.drain() == []
