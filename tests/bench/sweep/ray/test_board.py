import pytest
import ray

from regtta_bench.sweep.executors.ray import tasks as board

pytestmark = pytest.marker.usefixtures("cluster")


def standing():
    """A board whose process has started, however long that takes where others are at work."""
    wall = board.start_progress_actor()
    ray.get(wall.drain.remote())
    return wall


def test_what_a_worker_wrote_is_read_once_and_in_order():
    wall = standing()

    def on_training(wall):
        pen = board.ProgressReporter(wall)
        for done in range(1, 4):
            pen("model", done, 3)
        pen.flush()

    ray.get(ray.remote(on_training).remote(wall))
    assert board.drain_progress(wall) == [("model", 1, 3), ("model", 2, 3), ("model", 3, 3)]
    assert board.drain_progress(wall) == []


def test_a_lost_board_holds_nothing_up():
    wall = standing()
    ray.kill(wall)
    assert board.drain_progress(wall) == []
